import { type Job, Queue, type QueueOptions } from 'bullmq';
import type { Caller, RunOutcome, TraceContext } from '../core/run.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

export const QUEUE_NAME = 'runs';

/** The key of the hash in which BullMQ keeps a run. */
export function jobKeyOf(keys: Keys, runId: string): string {
  return `${keys.queuePrefix}:${QUEUE_NAME}:${runId}`;
}

/** BullMQ's own log of what happens to jobs, which orc does not read: entries kept of it. */
const BULLMQ_EVENTS = 100;

/** BullMQ's name for the pause between two attempts; the worker computes the pause. */
export const BACKOFF_TYPE = 'capped-exponential';

/**
 * The format of a job's data. Raise it when workers of the earlier version would execute such a run wrongly, not for a field
 * that they may ignore. They leave runs of a higher format to newer workers, but can list and cancel them.
 */
export const JOB_FORMAT = 1;

/** A job's data. The payload is a string, which BullMQ's JSON preserves byte for byte. */
export interface RunJobData extends TraceContext {
  /** {@link JOB_FORMAT} of the version that accepted the run; jobs without one have the first format. */
  format?: number;
  automationId: string;
  payload: string;
  requestId: string;
  caller?: Caller;
  /** Hash of the idempotency key that the run was accepted with. */
  idempotency?: string;
  /** Whether the run waits in its automation's lane and takes one of its places. */
  inLane?: true;
  /** The run that this one repeats. */
  retryOf?: string;
}

export type BullQueue = Queue<RunJobData, RunOutcome>;
export type RunJob = Job<RunJobData, RunOutcome>;
export type QueueTelemetry = NonNullable<QueueOptions['telemetry']>;

/** Nothing was enqueued: Redis is not connected, or refused. */
export class QueueUnavailableError extends Error {
  override name = 'QueueUnavailableError';
}

/**
 * Opens the BullMQ queue once the connection is first ready: a queue that is opened while Redis is down stays unusable.
 */
export class QueueOpener {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #onError: (error: Error) => void;
  #opening: Promise<BullQueue> | undefined;

  constructor(redis: RedisClient, keys: Keys, onError: (error: Error) => void) {
    this.#redis = redis;
    this.#keys = keys;
    this.#onError = onError;
  }

  /** @throws QueueUnavailableError when a fail-fast connection is down */
  async open(): Promise<BullQueue> {
    const failsFast = !this.#redis.options.enableOfflineQueue;
    if (failsFast && this.#redis.status !== 'ready') {
      throw new QueueUnavailableError('Redis is not connected.');
    }
    this.#opening ??= this.#make().catch((error: Error) => {
      this.#opening = undefined;
      this.#onError(error);
      throw error;
    });
    return this.#opening;
  }

  async #make(): Promise<BullQueue> {
    // With an offline queue, this waits for the connection, or fails with the reason.
    await this.#redis.ping();
    const queue: BullQueue = new Queue(QUEUE_NAME, {
      connection: this.#redis,
      prefix: this.#keys.queuePrefix,
      streams: { events: { maxLen: BULLMQ_EVENTS } },
    });
    // The connection's errors reach the code that opened it.
    queue.on('error', () => undefined);
    await queue.waitUntilReady();
    return queue;
  }
}
