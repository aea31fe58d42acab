import { UnrecoverableError, WaitingError, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '../core/deadline.ts';
import type { AttemptResult, RunAttempt, RunOutcome } from '../core/run.ts';
import { QUEUE_NAME, type RunJob, type RunJobData } from './queue.ts';
import { type RunStep, toRunAttempt } from './run-record.ts';
import { RETENTION_MS, type RetentionLimits } from './run-retention.ts';
import type { Store } from './store.ts';

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

/** Runs in progress are checked this often for an operator's wish to end them, in milliseconds. */
const CANCEL_POLL_MS = 500;

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
/** An operator wants the run to end. */
export const CANCELLED = 'cancelled';
/** The worker shuts down and wants the run back in the queue. */
export const SHUTTING_DOWN = 'shutting down';

export interface RunConsumerOptions {
  /** Waits while Redis is away. */
  redis: Redis;
  /** Fails while Redis is away. */
  store: Store;
  workerId: string;
  /** Runs executed at the same time. */
  concurrency: number;
  retentionLimits: RetentionLimits;
  /**
   * Executes one attempt. The signal's reason is {@link LOCK_LOST}, {@link SHUTTING_DOWN} or {@link CANCELLED}. The
   * attempt then ends what it started, and except for the last one returns `interrupted`, upon which the run goes back
   * to the head of the queue.
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
  const { store, workerId } = options;
  const attempts = new Map<string, { result: Promise<unknown>; interruption: AbortController }>();
  let isClosing = false;
  const background = new Set<Promise<void>>();
  const inBackground = (work: Promise<unknown>) => {
    const done = work.then(() => undefined, options.onError).finally(() => background.delete(done));
    background.add(done);
  };
  // Not waited for: on one connection, what is noted first is there first.
  const note = (job: RunJob, step: RunStep) => inBackground(store.runs.note(job, step));
  const isCancelled = async (runId: string) => {
    const requests = await store.runs.cancelRequests([runId]).catch(() => []);
    return requests.length > 0;
  };
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
    // Of the first attempt it is known that nobody asked for its end before it began.
    if (run.attempt > 1 && (await isCancelled(run.id))) interruption.abort(CANCELLED);
    note(job, { attempt: run.attempt, worker: workerId, startedAt: Date.now() });
    const result = options.execute(run, interruption.signal).finally(() => attempts.delete(run.id));
    attempts.set(run.id, { result, interruption });
    const ending = await result;
    return ending === 'interrupted' && interruption.signal.reason === LOCK_LOST ? 'lost' : ending;
  };
  const worker = new Worker<RunJobData, RunOutcome>(
    QUEUE_NAME,
    async (job, token) => {
      const result = await execute(job);
      const ending = { attempt: job.attemptsStarted, endedAt: Date.now() };
      if (result === 'interrupted') {
        note(job, { ...ending, interruption: 'the worker shut down' });
        await job.moveToWait(token);
      }
      // Tells BullMQ to leave the run as it is: back in the queue, or another worker's.
      if (result === 'interrupted' || result === 'lost') throw new WaitingError();
      const { outcome, mayRetry } = result;
      const isLast = !mayRetry || job.attemptsMade + 1 >= (job.opts.attempts ?? 1);
      // Noted before the run ends, so that whoever finds the run gone finds how it ended.
      if (isLast) await store.idempotency.settle(job.data, outcome.status).catch(options.onError);
      else note(job, { ...ending, outcome });
      if (outcome.status === 'succeeded') return outcome;
      const reason = JSON.stringify(outcome);
      throw mayRetry ? new Error(reason) : new UnrecoverableError(reason);
    },
    {
      connection: options.redis,
      prefix: store.keys.queuePrefix,
      name: workerId,
      concurrency: options.concurrency,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_CHECK_MS,
      // Whether a run whose worker died is repeated is the automation's choice, which `execute` knows.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      runRetryDelay: RETRY_MS,
      settings: { backoffStrategy: (attemptsMade) => pauseAfter(attemptsMade) },
    },
  );
  worker.on('error', options.onError);
  worker.on('completed', (job) => inBackground(store.runs.finish(job, { succeeded: true })));
  worker.on('failed', (job) => {
    if (job?.finishedOn !== undefined) inBackground(store.runs.finish(job, { succeeded: false }));
  });
  const cancelPolling = setInterval(() => {
    for (const [runId, { interruption }] of attempts) {
      void isCancelled(runId).then((wanted) => wanted && interruption.abort(CANCELLED));
    }
  }, CANCEL_POLL_MS);
  const tidying = setInterval(() => inBackground(store.lanes.tidy()), TIDY_MS);
  const sweeping = setInterval(
    () => inBackground(store.retention.takeTurn(workerId, options.retentionLimits)),
    RETENTION_MS,
  );
  worker.on('lockRenewalFailed', (runIds) => {
    for (const runId of runIds) attempts.get(runId)?.interruption.abort(LOCK_LOST);
  });

  return {
    ready: async () => {
      await worker.waitUntilReady();
    },
    close: async (graceMs) => {
      clearInterval(tidying);
      clearInterval(sweeping);
      const interrupt = setTimeout(() => {
        for (const { interruption } of attempts.values()) interruption.abort(SHUTTING_DOWN);
      }, graceMs);
      const isIdle = attempts.size === 0;
      isClosing = true;
      const closing = worker.close().then(() => Promise.all(background));
      await withDeadline(closing, isIdle ? IDLE_CLOSE_MS : graceMs + INTERRUPTION_MS).finally(() => {
        clearTimeout(interrupt);
        clearInterval(cancelPolling);
      });
    },
  };
}

/** @returns milliseconds until the next attempt */
function pauseAfter(attemptsMade: number): number {
  const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (attemptsMade - 1), LONGEST_PAUSE_MS);
  return Math.round(pauseMs * (1 - JITTER * Math.random()));
}
