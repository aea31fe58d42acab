import {
  isTerminal,
  type Run,
  type RunAttempt,
  type RunAttemptRecord,
  type RunOutcome,
  type RunStatus,
  type TraceContext,
} from '../core/run.ts';
import type { RunJob } from './queue.ts';

/**
 * A worker records the start of each attempt, and the end of each but the last. The record of a run that has ended with its
 * first attempt is dropped: the job tells it all.
 */
export type RunStep =
  | { attempt: number; worker: string; startedAt: number }
  | { attempt: number; endedAt: number; outcome?: RunOutcome; interruption?: string };

/**
 * A job as operators see its run.
 *
 * @param isActive whether a worker held it, asked before the job was read
 * @param firstStep the first step that a worker recorded, for a run with several attempts or whose start BullMQ does not know
 */
export function toRun(job: RunJob, isActive: boolean, firstStep?: string | null): Run {
  const status = statusOf(job, isActive);
  const outcome = outcomeOf(job);
  const { requestId, payload, caller, retryOf } = job.data;
  const first = startIn(firstStep) ?? job.processedOn;
  return {
    id: job.id ?? '',
    automation: job.name,
    status,
    acceptedAt: new Date(job.timestamp),
    attempt: job.attemptsStarted,
    maxAttempts: job.opts.attempts ?? 1,
    requestId,
    payloadBytes: Buffer.byteLength(payload),
    ...(first !== undefined && {
      startedAt: new Date(job.processedOn ?? first),
      firstStartedAt: new Date(first),
    }),
    ...(job.finishedOn !== undefined && isTerminal(status) && { endedAt: new Date(job.finishedOn) }),
    ...(job.processedBy !== undefined && { worker: job.processedBy }),
    ...(outcome !== undefined && status !== 'running' && { outcome }),
    ...(caller && { caller }),
    ...(retryOf !== undefined && { retryOf }),
  };
}

function startIn(step: string | null | undefined): number | undefined {
  if (!step) return undefined;
  const recorded = JSON.parse(step) as RunStep;
  return 'startedAt' in recorded ? recorded.startedAt : undefined;
}

function statusOf(job: RunJob, isActive: boolean): RunStatus {
  if (job.finishedOn !== undefined) return outcomeOf(job)?.status ?? 'failed';
  if (isActive) return 'running';
  return job.attemptsMade > 0 ? 'retrying' : 'queued';
}

/** How the job's latest attempt ended. BullMQ keeps a success as the return value and anything else as the reason. */
export function outcomeOf(
  job: Pick<RunJob, 'failedReason'> & { returnvalue?: RunOutcome | null },
): RunOutcome | undefined {
  if (job.returnvalue) return job.returnvalue;
  if (!job.failedReason) return undefined;
  try {
    return JSON.parse(job.failedReason) as RunOutcome;
  } catch {
    // Not written by a worker of orc, but by BullMQ itself, which fails a job only when its workers die.
    return { status: 'failed', reason: 'worker_lost', message: job.failedReason };
  }
}

/** Every attempt at a run, from its workers' records and its status. */
export function toAttempts(run: Run, steps: readonly string[]): RunAttemptRecord[] {
  const attempts = new Map<number, RunAttemptRecord>();
  const { attempt: latest, worker, startedAt } = run;
  if (latest === 1 && worker !== undefined && startedAt) attempts.set(1, { attempt: 1, worker, startedAt });
  for (const text of steps) {
    const { attempt, ...step } = JSON.parse(text) as RunStep;
    const started = attempts.get(attempt);
    if ('startedAt' in step) attempts.set(attempt, { attempt, ...step, startedAt: new Date(step.startedAt) });
    else if (started) attempts.set(attempt, { ...started, ...step, endedAt: new Date(step.endedAt) });
  }
  return [...attempts.values()].map((record) => {
    if (record.endedAt) return record;
    const { endedAt, outcome } = run;
    if (record.attempt === run.attempt && endedAt && outcome) return { ...record, endedAt, outcome };
    const goesOn = record.attempt === run.attempt && run.status === 'running';
    return goesOn ? record : { ...record, interruption: 'worker lost' };
  });
}

/** A job as the attempt that a worker is about to make. */
export function toRunAttempt(job: RunJob): RunAttempt {
  const { automationId, payload, requestId } = job.data;
  return {
    id: job.id ?? '',
    automation: job.name,
    automationId,
    attempt: job.attemptsStarted,
    isLast: isLastAttempt(job),
    acceptedAt: new Date(job.timestamp),
    requestId,
    payload: Buffer.from(payload),
    workersLost: job.stalledCounter,
    ...traceContextIn(job.data),
  };
}

/** The trace of the request that started a run. */
export function traceContextIn({ traceparent, tracestate }: TraceContext): TraceContext {
  return {
    ...(traceparent !== undefined && { traceparent }),
    ...(tracestate !== undefined && { tracestate }),
  };
}

/** Whether the current attempt is the last one. */
export function isLastAttempt({ attemptsMade, opts }: RunJob): boolean {
  return attemptsMade + 1 >= (opts.attempts ?? 1);
}
