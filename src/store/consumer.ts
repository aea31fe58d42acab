import { UnrecoverableError, WaitingError, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '../core/deadline.ts';
import type { AttemptResult, RunAttempt, RunOutcome } from '../core/run.ts';
import type { IdempotencyStore } from './idempotency.ts';
import type { Keys } from './keys.ts';
import type { RunLanes } from './lanes.ts';
import { QUEUE_NAME, type RunJob, type RunJobData } from './queue.ts';
import { toRunAttempt } from './runs.ts';

/**
 * A worker holds a lock on each run it executes and renews it; a run whose lock ended is given to another worker. The
 * two figures bound how long a dead worker's run waits: 30 + 10 seconds.
 */
const LOCK_MS = 30_000;
const STALLED_CHECK_MS = 10_000;

/** Pause after an error of Redis, in milliseconds. BullMQ's own 15 s would leave a worker idle long after an outage. */
const RETRY_MS = 500;

/** Lanes are looked after this often, in milliseconds: so long may a run wait too long after a crash. */
const TIDY_MS = 5000;

/** Pause before the second attempt, in milliseconds; it doubles with every further one, up to the longest. */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 600_000;

/** Pauses are shortened by up to this share, so that what failed together is not repeated together. */
const JITTER = 0.2;

/** After the grace period: time for commands to end and for their runs to get back into the queue, in milliseconds. */
const INTERRUPTION_MS = 7000;

/** A worker without a run has nothing to wait for but Redis, which may be away; in milliseconds. */
const IDLE_CLOSE_MS = 1000;

/** The worker lost its claim to the run, which may by now execute elsewhere. */
export const LOCK_LOST = 'lock lost';
/** The worker shuts down and wants the run back in the queue. */
export const SHUTTING_DOWN = 'shutting down';

export interface RunConsumerOptions {
  redis: Redis;
  keys: Keys;
  lanes: RunLanes;
  idempotency: IdempotencyStore;
  workerId: string;
  /** Runs executed at the same time. */
  concurrency: number;
  /** Seconds that an ended run is kept. */
  retentionSeconds: number;
  /**
   * Executes one attempt. The signal's reason is {@link LOCK_LOST} or {@link SHUTTING_DOWN}; the attempt then ends what
   * it started and returns `interrupted`, upon which the run goes back to the head of the queue.
   */
  execute(run: RunAttempt, signal: AbortSignal): Promise<AttemptResult | 'interrupted'>;
  onError(error: Error): void;
}

export interface RunConsumer {
  /** Resolves when the first run can be taken. */
  ready(): Promise<void>;
  /**
   * Takes no more runs, waits for those in progress, and after `graceMs` milliseconds interrupts what is left.
   *
   * @throws DeadlineError when Redis is away, so that the runs in progress stay locked until their locks end
   */
  close(graceMs: number): Promise<void>;
}

/** Takes runs from the queue and turns what {@link RunConsumerOptions.execute} says of them into BullMQ's terms. */
export function consumeRuns(options: RunConsumerOptions): RunConsumer {
  const attempts = new Map<string, { result: Promise<unknown>; interruption: AbortController }>();
  let isClosing = false;
  const execute = async (job: RunJob): Promise<AttemptResult | 'interrupted' | 'lost'> => {
    const run = toRunAttempt(job);
    // BullMQ can still take a run while its worker closes; such a run goes back at once.
    if (isClosing) return 'interrupted';
    const earlier = attempts.get(run.id);
    if (earlier) {
      // This worker lost the run and took it again, itself. BullMQ's bookkeeping is by run, and mixes up two attempts
      // at one in the same worker, so that the run goes back until the earlier attempt has ended.
      earlier.interruption.abort(LOCK_LOST);
      await earlier.result.catch(() => undefined);
      return 'interrupted';
    }
    const interruption = new AbortController();
    const result = options.execute(run, interruption.signal).finally(() => attempts.delete(run.id));
    attempts.set(run.id, { result, interruption });
    const ending = await result;
    return ending === 'interrupted' && interruption.signal.reason === LOCK_LOST ? 'lost' : ending;
  };
  const worker = new Worker<RunJobData, RunOutcome>(
    QUEUE_NAME,
    async (job, token) => {
      const result = await execute(job);
      if (result === 'interrupted') await job.moveToWait(token);
      // Tells BullMQ to leave the run as it is: back in the queue, or another worker's.
      if (result === 'interrupted' || result === 'lost') throw new WaitingError();
      const { outcome, mayRetry } = result;
      const isLast = !mayRetry || job.attemptsMade + 1 >= (job.opts.attempts ?? 1);
      const { automationId, idempotency } = job.data;
      // Noted before the run ends, so that whoever finds the run gone finds how it ended.
      if (isLast && idempotency !== undefined) {
        await options.idempotency.settle(automationId, idempotency, outcome.status).catch(options.onError);
      }
      if (outcome.status === 'succeeded') return outcome;
      const reason = JSON.stringify(outcome);
      throw mayRetry ? new Error(reason) : new UnrecoverableError(reason);
    },
    {
      connection: options.redis,
      prefix: options.keys.queuePrefix,
      name: options.workerId,
      concurrency: options.concurrency,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_CHECK_MS,
      // Whether a run whose worker died is repeated is the automation's choice, which `execute` knows.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      runRetryDelay: RETRY_MS,
      settings: { backoffStrategy: (attemptsMade) => pauseAfter(attemptsMade) },
      removeOnComplete: { age: options.retentionSeconds },
      removeOnFail: { age: options.retentionSeconds },
    },
  );
  worker.on('error', options.onError);
  const leaving = new Set<Promise<void>>();
  const leaveLane = (job: RunJob | undefined) => {
    if (!job?.data.inLane || job.finishedOn === undefined) return;
    const owner = { automationId: job.data.automationId, slug: job.name };
    const leave = options.lanes
      .leave(owner, job.id ?? '')
      .catch(options.onError)
      .finally(() => leaving.delete(leave));
    leaving.add(leave);
  };
  worker.on('completed', leaveLane);
  worker.on('failed', leaveLane);
  const tidying = setInterval(() => options.lanes.tidy().catch(options.onError), TIDY_MS);
  worker.on('lockRenewalFailed', (runIds) => {
    for (const runId of runIds) attempts.get(runId)?.interruption.abort(LOCK_LOST);
  });

  return {
    ready: async () => {
      await worker.waitUntilReady();
    },
    close: async (graceMs) => {
      clearInterval(tidying);
      const interrupt = setTimeout(() => {
        for (const { interruption } of attempts.values()) interruption.abort(SHUTTING_DOWN);
      }, graceMs);
      const isIdle = attempts.size === 0;
      isClosing = true;
      const closing = worker.close().then(() => Promise.all(leaving));
      await withDeadline(closing, isIdle ? IDLE_CLOSE_MS : graceMs + INTERRUPTION_MS).finally(() =>
        clearTimeout(interrupt),
      );
    },
  };
}

/** @returns milliseconds until the next attempt */
function pauseAfter(attemptsMade: number): number {
  const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (attemptsMade - 1), LONGEST_PAUSE_MS);
  return Math.round(pauseMs * (1 - JITTER * Math.random()));
}
