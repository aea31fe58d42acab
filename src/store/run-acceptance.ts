import { hash } from 'node:crypto';
import { Job } from 'bullmq';
import { withDeadline } from '../core/deadline.ts';
import type { Caller, TerminalRunStatus, TraceContext } from '../core/run.ts';
import {
  type AcceptReply,
  type AcceptScript,
  type AcceptScriptRequest,
  defineAcceptScript,
} from './accept-script.ts';
import type { AutomationStore, TriggeredAutomation } from './automations.ts';
import type { RedisClient } from './connect.ts';
import { IDEMPOTENCY_WINDOW_MS } from './idempotency.ts';
import type { Keys } from './keys.ts';
import {
  BACKOFF_TYPE,
  JOB_FORMAT,
  type QueueOpener,
  QueueUnavailableError,
  type RunJobData,
} from './queue.ts';
import type { RedisClock } from './redis-clock.ts';
import { traceContextIn } from './run-record.ts';

/** A run to accept. */
export interface NewRun extends TraceContext {
  /** From `newRunId`. Accepting the same id again changes nothing. */
  id: string;
  /** JSON text of an object, valid UTF-8. */
  payload: string;
  requestId: string;
  /** The caller's `Idempotency-Key`. */
  idempotencyKey?: string | undefined;
  /** Who triggered it over HTTP. */
  caller?: Caller | undefined;
  /** The run that this one repeats. */
  retryOf?: string | undefined;
}

export interface AcceptLimits {
  /** Deadline by `Date.now()`; after it Redis accepts nothing. */
  endsAt: number;
  /** Runs that may wait to be executed, over all automations. */
  maxQueuedRuns: number;
}

/** What is left of an automation's rate limit. */
export interface RateState {
  /** Runs that may still be accepted in this window. */
  remaining: number;
  /** Milliseconds until the window ends. */
  resetMs: number;
}

/** The result of accepting a run. Only `accepted` has enqueued one. */
export type AcceptVerdict =
  | { status: 'accepted'; runId: string; rate?: RateState }
  /** The run of an earlier request with the idempotency key; `ended` is its final status. */
  | { status: 'known'; runId: string; ended?: TerminalRunStatus }
  /** The idempotency key was used with another payload. */
  | { status: 'reused' }
  /** The key is no longer valid, or the automation no longer exists. */
  | { status: 'rejected' }
  | { status: 'disabled' }
  | { status: 'limited'; rate: RateState }
  | { status: 'full' };

/** Accepts each run atomically in one round trip: Redis checks every condition where it enqueues the run. */
export class RunAcceptance {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #queue: QueueOpener;
  readonly #automations: AutomationStore;
  readonly #clock: RedisClock;
  #script: Promise<AcceptScript> | undefined;

  constructor(
    redis: RedisClient,
    keys: Keys,
    parts: { queue: QueueOpener; automations: AutomationStore; clock: RedisClock },
  ) {
    this.#redis = redis;
    this.#keys = keys;
    this.#queue = parts.queue;
    this.#automations = parts.automations;
    this.#clock = parts.clock;
  }

  /**
   * Accepts a run, if its automation has not changed since it was read.
   *
   * @throws QueueUnavailableError when the run was certainly not enqueued; after any other error, such as a DeadlineError,
   *   it may have been
   */
  async accept(automation: TriggeredAutomation, run: NewRun, limits: AcceptLimits): Promise<AcceptVerdict> {
    return withDeadline(this.#decide(automation, run, limits), limits.endsAt - Date.now());
  }

  async #decide(automation: TriggeredAutomation, run: NewRun, limits: AcceptLimits): Promise<AcceptVerdict> {
    let opened = automation;
    let { id } = run;
    const repeated = new Set<AcceptReply[0]>();
    for (;;) {
      const reply = await this.#execute(opened, { ...run, id }, limits);
      if (repeated.has(reply[0])) throw new QueueUnavailableError(`Redis replied "${reply[0]}" twice.`);
      switch (reply[0]) {
        // These three replies are resolved and the script is repeated once.
        case 'expired':
          this.#clock.told(reply[1]);
          break;
        case 'reserved':
          id = reply[1];
          break;
        case 'changed': {
          const found = await this.#automations.reopen(opened);
          if (found.status !== 'authenticated') return found;
          opened = found.automation;
          break;
        }
        case 'accepted': {
          const [status, runId, remaining, resetMs] = reply;
          const hasRate = typeof remaining === 'number' && typeof resetMs === 'number';
          return { status, runId, ...(hasRate && { rate: { remaining, resetMs } }) };
        }
        case 'known': {
          const [status, runId, ended] = reply;
          return { status, runId, ...(ended && { ended }) };
        }
        case 'limited':
          return { status: reply[0], rate: { remaining: reply[1], resetMs: reply[2] } };
        default:
          return { status: reply[0] };
      }
      repeated.add(reply[0]);
    }
  }

  async #execute(automation: TriggeredAutomation, run: NewRun, limits: AcceptLimits): Promise<AcceptReply> {
    const queue = await this.#queue.open();
    const deadline = await this.#clock.in(limits.endsAt - Date.now());
    const { id: automationId, slug, updatedAt, keyHash, attempts, concurrency, rate } = automation;
    const { id: runId, payload, idempotencyKey } = run;
    const idempotency = idempotencyKey === undefined ? undefined : sha256(idempotencyKey);
    const request: AcceptScriptRequest = {
      ...{ runId, slug, automationId, updatedAt, keyHash, deadline, concurrency },
      payloadHash: idempotency === undefined ? undefined : sha256(payload),
      idempotencyWindowMs: IDEMPOTENCY_WINDOW_MS,
      ...(keyHash !== undefined && { rateLimit: rate?.limit, rateWindowMs: rate?.windowMs }),
      maxQueuedRuns: limits.maxQueuedRuns,
    };
    const { lane, laneRunning, lanes, openRuns, rateWindow } = this.#keys;
    const keys = {
      automation: this.#keys.automation(slug),
      job: queue.toKey(runId),
      wait: queue.toKey('wait'),
      delayed: queue.toKey('delayed'),
      prioritized: queue.toKey('prioritized'),
      openRuns: openRuns(slug),
      allOpenRuns: openRuns(),
      idempotency: this.#keys.idempotency(automationId, idempotency ?? ''),
      rateWindow: rateWindow(automationId),
      lanes,
      lane: lane(automationId),
      laneRunning: laneRunning(automationId),
    };
    const job = new Job(queue, slug, dataOf(automation, run, idempotency), {
      attempts,
      ...(attempts > 1 && { backoff: { type: BACKOFF_TYPE } }),
      // A failure's reason is a RunOutcome; a stack trace would add nothing.
      stackTraceLimit: 0,
    }).asJSON();
    this.#script ??= defineAcceptScript(this.#redis, queue, job);
    const script = await this.#script;
    return script(job, request, keys).catch((error: Error) => {
      // A reply with an error, such as OOM, means that nothing was enqueued.
      throw error.name === 'ReplyError' ? new QueueUnavailableError(error.message, { cause: error }) : error;
    });
  }
}

/** A job's data. @param idempotency SHA-256 of its idempotency key */
function dataOf(automation: TriggeredAutomation, run: NewRun, idempotency: string | undefined): RunJobData {
  const { payload, requestId, caller, retryOf } = run;
  return {
    format: JOB_FORMAT,
    automationId: automation.id,
    payload,
    requestId,
    ...traceContextIn(run),
    ...(caller && { caller }),
    ...(idempotency !== undefined && { idempotency }),
    ...(automation.concurrency !== undefined && { inLane: true }),
    ...(retryOf !== undefined && { retryOf }),
  };
}

/** The stored form of idempotency keys, and of payloads for comparison. */
function sha256(text: string): string {
  return hash('sha256', text, 'base64url');
}
