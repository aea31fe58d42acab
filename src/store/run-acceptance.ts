import { hash } from 'node:crypto';
import type { JobsOptions } from 'bullmq';
import { withDeadline } from '../core/deadline.ts';
import { type Caller, skippedOutcome, type TerminalRunStatus, type TraceContext } from '../core/run.ts';
import {
  type AcceptedReply,
  type AcceptReply,
  type AcceptScript,
  defineAcceptScript,
} from './accept-script.ts';
import type { AutomationStore, TriggeredAutomation } from './automations.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { PayloadSchemas } from './payload-schemas.ts';
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
  /** Who triggered it. */
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

export interface AcceptedVerdict {
  status: 'accepted';
  runId: string;
  rate?: RateState;
  /** The run has ended: no place was free. */
  isSkipped?: true;
}

/** The result of accepting a run. Only `accepted` has enqueued one. */
export type AcceptVerdict =
  | AcceptedVerdict
  /** The automation's schema refuses the payload. */
  | { status: 'invalid'; problem: string }
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
  readonly #schemas: PayloadSchemas;
  readonly #clock: RedisClock;
  #script: Promise<AcceptScript> | undefined;

  constructor(
    redis: RedisClient,
    keys: Keys,
    parts: { queue: QueueOpener; automations: AutomationStore; schemas: PayloadSchemas; clock: RedisClock },
  ) {
    this.#redis = redis;
    this.#keys = keys;
    this.#queue = parts.queue;
    this.#automations = parts.automations;
    this.#schemas = parts.schemas;
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
      const refusal = opened.schemaHash && (await this.#refusal(opened, run.payload));
      const reply = refusal || (await this.#execute(opened, id, run, limits));
      if ('status' in reply) return reply;
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
        case 'accepted':
          return acceptedVerdict(id, reply);
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

  /** What the automation's schema has against a payload. */
  async #refusal(
    opened: TriggeredAutomation,
    payload: string,
  ): Promise<AcceptVerdict | [word: 'changed'] | undefined> {
    const judged = await this.#schemas.judge(opened, payload);
    if (judged.status === 'fits') return undefined;
    if (judged.status === 'changed') return ['changed'];
    // The key and the schema may come from memory: Redis confirms both before anything is said of the payload.
    const found = await this.#automations.reopen(opened);
    if (found.status !== 'authenticated') return found;
    return found.automation.schemaHash === opened.schemaHash ? judged : ['changed'];
  }

  async #execute(
    automation: TriggeredAutomation,
    runId: string,
    run: NewRun,
    limits: AcceptLimits,
  ): Promise<AcceptReply> {
    const queue = await this.#queue.open();
    const deadline = await this.#clock.in(limits.endsAt - Date.now());
    const { slug, keyHash, concurrency, whenBusy } = automation;
    const idempotency = run.idempotencyKey === undefined ? undefined : sha256(run.idempotencyKey);
    // Operators, who need no key, have no rate limit either.
    const rate = keyHash === undefined ? undefined : automation.rate;
    const skips = concurrency !== undefined && concurrency > 0 && whenBusy === 'skip';
    const request = {
      data: JSON.stringify(dataOf(automation, run, idempotency)),
      options: JSON.stringify(optionsOf(automation)),
      timestamp: Date.now(),
      runId,
      slug,
      automationId: automation.id,
      updatedAt: automation.updatedAt,
      keyHash,
      deadline,
      maxQueuedRuns: limits.maxQueuedRuns,
      concurrency,
      skippedOutcome: skips ? JSON.stringify(skippedOutcome(concurrency)) : undefined,
      rateLimit: rate?.limit,
      rateWindowMs: rate?.windowMs,
      idempotency,
      payloadHash: idempotency === undefined ? undefined : sha256(run.payload),
    };
    this.#script ??= defineAcceptScript(this.#redis, this.#keys, queue);
    const script = await this.#script;
    return script(this.#keys.automation(slug), request).catch((error: Error) => {
      // A reply with an error, such as OOM, means that nothing was enqueued.
      throw error.name === 'ReplyError' ? new QueueUnavailableError(error.message, { cause: error }) : error;
    });
  }
}

function acceptedVerdict(
  runId: string,
  [status, isSkipped, remaining, resetMs]: AcceptedReply,
): AcceptedVerdict {
  const hasRate = remaining !== undefined && resetMs !== undefined;
  return {
    status,
    runId,
    ...(hasRate && { rate: { remaining, resetMs } }),
    ...(isSkipped === 1 && { isSkipped: true }),
  };
}

/** A job's data, for JSON, which leaves out what is undefined. @param idempotency SHA-256 of its idempotency key */
function dataOf(automation: TriggeredAutomation, run: NewRun, idempotency: string | undefined) {
  return {
    format: JOB_FORMAT,
    automationId: automation.id,
    payload: run.payload,
    requestId: run.requestId,
    ...traceContextIn(run),
    caller: run.caller,
    idempotency,
    inLane: automation.concurrency === undefined ? undefined : true,
    retryOf: run.retryOf,
  } satisfies { [Name in keyof RunJobData]: RunJobData[Name] | undefined };
}

/** A job's options. */
function optionsOf({ attempts }: TriggeredAutomation): JobsOptions {
  return {
    attempts,
    ...(attempts > 1 && { backoff: { type: BACKOFF_TYPE } }),
    // A failure's reason is a RunOutcome; a stack trace would add nothing.
    stackTraceLimit: 0,
  };
}

/** The stored form of idempotency keys, and of payloads for comparison. */
function sha256(text: string): string {
  return hash('sha256', text, 'base64url');
}
