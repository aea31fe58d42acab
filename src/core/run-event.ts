import type { Run, TerminalRunStatus } from './run.ts';

/** Which of an automation's URLs an event goes to: each field of the automation that may hold one. */
export const EVENT_RECEIVERS = ['onEnd', 'onFailure'] as const;
export type EventReceiver = (typeof EVENT_RECEIVERS)[number];

/** What becomes of one event at one URL. */
export interface EventDelivery {
  receiver: EventReceiver;
  /** `dropped`: given up, or never tried because too many events waited. */
  status: 'waiting' | 'delivered' | 'dropped';
  /** When it was delivered or dropped. */
  at?: Date;
  tries: number;
  nextTryAt?: Date;
  /** What went wrong with the latest try, or why it was dropped: one sentence. */
  lastError?: string;
}

/**
 * The `webhook-id` of the event of a run that has ended: the same at every URL and in every try. It has no full stop, as
 * Standard Webhooks requires.
 */
export function eventIdOf(runId: string, status: TerminalRunStatus): string {
  return `evt_${runId.slice('run_'.length)}_${status}`;
}

/** The run that an event is about. */
export function runIdOf(eventId: string): string {
  return `run_${eventId.slice('evt_'.length, 'evt_'.length + 36)}`;
}

/**
 * The JSON text of the event of an ended run, as Standard Webhooks recommends: a type, the time when it happened, the data.
 * The result, which Redis has, is put before the last two braces where the event is queued.
 */
export function eventBody(run: Run, status: TerminalRunStatus): string {
  const { id: runId, automation: slug, acceptedAt, startedAt, endedAt = new Date(), outcome } = run;
  const { attempt: attempts, maxAttempts, requestId, retryOf } = run;
  const times = { createdAt: acceptedAt, startedAt, endedAt };
  return JSON.stringify({
    type: `run.${status}`,
    timestamp: endedAt,
    data: {
      run: { runId, status, ...times, attempts, maxAttempts, requestId, retryOf },
      automation: { slug },
      outcome,
    },
  });
}

/** When an event happened. @param body from {@link eventBody} */
export function eventTime(body: string): Date {
  const [, time = ''] = /"timestamp":"([^"]+)"/.exec(body.slice(0, 100)) ?? [];
  return new Date(time);
}
