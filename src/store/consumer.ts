import { setTimeout as delay } from 'node:timers/promises';
import { DelayedError, UnrecoverableError, WaitingError, Worker } from 'bullmq';
import { withDeadline } from '../core/deadline.ts';
import type { AttemptResult, Run, RunAttempt, RunOutcome } from '../core/run.ts';
import type { ExecutableAutomation } from './automations.ts';
import { JOB_FORMAT, QUEUE_NAME, type RunJob, type RunJobData } from './queue.ts';
import { isLastAttempt, type RunStep, toRun, toRunAttempt, traceContextIn } from './run-record.ts';
import { RETENTION_MS, type RetentionLimits } from './run-retention.ts';
import type { Store } from './store.ts';

/**
 * A worker holds a lock on each run it executes and renews it; a run whose lock ended is given to another worker. All
 * figures are in milliseconds.
 */
export interface LockTiming {
  /** From the latest renewal to the end of the lock. */
  lockMs: number;
  /** Locks that have ended are looked for this often, which with `lockMs` bounds how long a dead worker's run waits. */
  stalledCheckMs: number;
  /** Between two renewals. */
  renewMs: number;
  /** From the latest renewal to the moment from which the worker, or its guard, ends the attempt: see {@link Lease}. */
  leaseMs: number;
}

export const LOCK_TIMING: Readonly<LockTiming> = {
  lockMs: 30_000,
  stalledCheckMs: 10_000,
  renewMs: 5000,
  leaseMs: 20_000,
};

/** Leases are held against the clock this often, in milliseconds. */
const LEASE_CHECK_MS = 250;

/**
 * How long a run is this worker's for certain. The lease moves on while Redis answers, and ends so long before the lock
 * that what the attempt has started can be ended while nobody else may execute the run yet.
 */
export interface Lease {
  /** By `Date.now()`. */
  endsAt: number;
}

/** Pause after an error of Redis, in milliseconds. BullMQ's own 15 s would leave a worker idle long after an outage. */
const RETRY_MS = 500;

/**
 * Pause before a run is asked for again after Redis refused to tell one, in milliseconds: it grows by the first with each
 * refusal in a row, up to the longest. BullMQ asks again at once, thousands of times a second.
 */
const REFUSAL_PAUSE_MS = 50;
const LONGEST_REFUSAL_PAUSE_MS = 2000;

/** Lanes are looked after this often, in milliseconds: so long may a run wait too long after a crash. */
const TIDY_MS = 5000;

/** Runs in progress are checked this often for an operator's wish to end them, in milliseconds. */
const CANCEL_POLL_MS = 500;

/** Pause before the second attempt, in milliseconds; it doubles with every further one, up to the longest. */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 600_000;

/** Pauses are shortened by up to this share, so that what failed together is not repeated together. */
const JITTER = 0.2;

/** A run that only a newer worker can execute is offered to the workers again after this long, in milliseconds. */
const NEWER_FORMAT_PAUSE_MS = 2000;

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
  /** What every run needs, in one order. Its connection waits while Redis is away. */
  store: Store;
  /** What is looked after besides. Its connection fails while Redis is away. */
  side: Store;
  workerId: string;
  /** Runs executed at the same time. */
  concurrency: number;
  retentionLimits: RetentionLimits;
  /**
   * Executes one attempt, by what its automation is now, if there still is one of that name. The signal's reason is
   * {@link LOCK_LOST}, {@link SHUTTING_DOWN} or {@link CANCELLED}; the attempt then ends what it started and returns
   * `interrupted`, upon which the run goes back to the head of the queue unless it is lost; a cancelled one returns its
   * outcome.
   */
  execute(
    run: RunAttempt,
    signal: AbortSignal,
    lease: Readonly<Lease>,
    automation: ExecutableAutomation | undefined,
  ): Promise<AttemptResult | 'interrupted'>;
  onError(error: Error): void;
  /** Is told of each run that has ended for good here. */
  onEnded?(run: Run): void;
  timing?: Readonly<LockTiming>;
  /** Makes a span for each attempt; the one that is active in `execute`. */
  telemetry?: QueueTelemetry | undefined;
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
  const { store, side, workerId } = options;
  const { lockMs, stalledCheckMs, renewMs, leaseMs } = options.timing ?? LOCK_TIMING;
  const attempts = new Map<string, Attempt>();
  let isClosing = false;
  const background = new Set<Promise<void>>();
  const inBackground = (work: Promise<unknown>) => {
    const done = work.then(() => undefined, options.onError).finally(() => background.delete(done));
    background.add(done);
  };
  // Not waited for: on one connection, what is noted first is there first.
  const note = (job: RunJob, step: RunStep) => inBackground(store.runs.note(job, step));
  const isCancelled = async (runId: string) => {
    const requests = await side.runs.cancelRequests([runId]).catch(() => []);
    return requests.length > 0;
  };
  let hasLeftRuns = false;
  /** Puts a run that a newer version accepted back as if it had not been taken, but for its place in the queue. */
  const leaveToNewer = async (job: RunJob, token = ''): Promise<never> => {
    if (!hasLeftRuns) options.onError(new Error('Runs wait for a worker of a newer version than this one.'));
    hasLeftRuns = true;
    const untaken = { ats: job.attemptsStarted - 1, processedOn: '', pb: '' };
    await worker
      .getBackend()
      .moveToDelayed(job.id ?? '', Date.now(), NEWER_FORMAT_PAUSE_MS, token, {
        skipAttempt: true,
        fieldsToUpdate: untaken,
      })
      // The run is this worker's until its lock ends, and then the next one's.
      .catch(options.onError);
    throw new DelayedError();
  };
  const execute = async (job: RunJob, token = ''): Promise<AttemptResult | 'interrupted' | 'lost'> => {
    const run = toRunAttempt(job);
    // BullMQ can still take a run while its worker closes; such a run goes back at once.
    if (isClosing) return 'interrupted';
    const earlier = attempts.get(run.id);
    if (earlier) {
      // This worker lost the run and took it again, itself. BullMQ's bookkeeping is by run, and mixes up two attempts
      // at one in the same worker, so that the run goes back until the earlier attempt has ended.
      lose(earlier);
      await earlier.result.catch(() => undefined);
      return 'interrupted';
    }
    // The answer with the run may have come long after the question, to a worker that was frozen or cut off meanwhile.
    let askedAt = job.processedOn ?? Date.now();
    while (Date.now() >= askedAt + leaseMs) {
      askedAt = Date.now();
      if (!(await job.extendLock(token, lockMs).catch(() => 0))) return 'lost';
    }
    const lease = { endsAt: askedAt + leaseMs };
    const interruption = new AbortController();
    // Of the first attempt it is known that nobody asked for its end before it began.
    if (run.attempt > 1 && (await isCancelled(run.id))) interruption.abort(CANCELLED);
    const begin = async () => {
      const start = { attempt: run.attempt, worker: workerId, startedAt: Date.now() };
      const automation = await store.automations.begin(run.automation, worker.toKey(run.id), start);
      return options.execute(run, interruption.signal, lease, automation);
    };
    const result = begin().finally(() => attempts.delete(run.id));
    attempts.set(run.id, { result, interruption, lease });
    const ending = await result;
    return isOver(lease) ? 'lost' : ending;
  };
  const renewed = (runIds: string[], askedAt: number) => {
    for (const runId of runIds) {
      const attempt = attempts.get(runId);
      // A lease that is over stays over: the guard may have ended the attempt already.
      if (attempt && !isOver(attempt.lease)) attempt.lease.endsAt = askedAt + leaseMs;
    }
  };
  const worker = new RenewingWorker(
    renewed,
    async (job, token) => {
      if ((job.data.format ?? 1) > JOB_FORMAT) return leaveToNewer(job, token);
      const result = await execute(job, token);
      const ending = { attempt: job.attemptsStarted, endedAt: Date.now() };
      if (result === 'interrupted') {
        note(job, { ...ending, interruption: 'the worker shut down' });
        await job.moveToWait(token);
      }
      // Tells BullMQ to leave the run as it is: back in the queue, or another worker's.
      if (result === 'interrupted' || result === 'lost') throw new WaitingError();
      const { outcome, mayRetry } = result;
      const isLast = !mayRetry || isLastAttempt(job);
      // Noted before the run ends, so that whoever finds the run gone finds how it ended.
      if (isLast) inBackground(store.idempotency.noteEnd(job.data, outcome.status));
      else note(job, { ...ending, outcome });
      if (outcome.status === 'succeeded') return outcome;
      const reason = JSON.stringify(outcome);
      throw mayRetry ? new Error(reason) : new UnrecoverableError(reason);
    },
    {
      connection: store.redis,
      prefix: store.keys.queuePrefix,
      name: workerId,
      concurrency: options.concurrency,
      lockDuration: lockMs,
      lockRenewTime: renewMs,
      stalledInterval: stalledCheckMs,
      // Whether a run whose worker died is repeated is the automation's choice, which `execute` knows.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      runRetryDelay: RETRY_MS,
      ...(options.telemetry && { telemetry: options.telemetry }),
      settings: { backoffStrategy: (attemptsMade) => pauseAfter(attemptsMade) },
    },
  );
  worker.on('error', options.onError);
  const finish = (job: RunJob, succeeded: boolean) => {
    // Not sent again when it was lost: a Redis that was restored from a backup may have the run in its lane again.
    inBackground(side.runs.finish(job, { succeeded }));
    options.onEnded?.(toRun(job, false));
  };
  worker.on('completed', (job) => finish(job, true));
  worker.on('failed', (job) => {
    if (job?.finishedOn !== undefined) finish(job, false);
  });
  const cancelPolling = setInterval(() => {
    for (const [runId, { interruption }] of attempts) {
      void isCancelled(runId).then((wanted) => wanted && interruption.abort(CANCELLED));
    }
  }, CANCEL_POLL_MS);
  const tidying = setInterval(() => inBackground(side.lanes.tidy()), TIDY_MS);
  const sweeping = setInterval(
    () => inBackground(side.retention.takeTurn(workerId, options.retentionLimits)),
    RETENTION_MS,
  );
  worker.on('lockRenewalFailed', (runIds) => {
    for (const runId of runIds) {
      const attempt = attempts.get(runId);
      if (attempt) lose(attempt);
    }
  });
  const leaseCheck = setInterval(() => {
    for (const attempt of attempts.values()) if (isOver(attempt.lease)) lose(attempt);
  }, LEASE_CHECK_MS);

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
        clearInterval(leaseCheck);
      });
    },
  };
}

/** An attempt that this worker makes. */
interface Attempt {
  result: Promise<unknown>;
  interruption: AbortController;
  lease: Lease;
}

function isOver({ endsAt }: Lease): boolean {
  return Date.now() >= endsAt;
}

/** The run is, or will be, somebody else's. */
function lose({ lease, interruption }: Attempt): void {
  lease.endsAt = Math.min(lease.endsAt, Date.now());
  interruption.abort(LOCK_LOST);
}

type RunWorkerOptions = ConstructorParameters<typeof Worker<RunJobData, RunOutcome>>[2];

export type QueueTelemetry = NonNullable<NonNullable<RunWorkerOptions>['telemetry']>;

/**
 * BullMQ's worker, which also says which locks it has renewed, and when it asked Redis to, by `Date.now()`; and which
 * pauses after a refusal of Redis.
 */
class RenewingWorker extends Worker<RunJobData, RunOutcome> {
  readonly #renewed: (runIds: string[], askedAt: number) => void;
  readonly #closing = new AbortController();
  #refusals = 0;

  constructor(
    renewed: (runIds: string[], askedAt: number) => void,
    process: (job: RunJob, token?: string) => Promise<RunOutcome>,
    options: RunWorkerOptions,
  ) {
    super(QUEUE_NAME, process, options);
    this.#renewed = renewed;
    this.once('closing', () => this.#closing.abort());
  }

  protected override async moveToActive(token: string, name?: string) {
    const pauseMs = Math.min(this.#refusals * REFUSAL_PAUSE_MS, LONGEST_REFUSAL_PAUSE_MS);
    if (pauseMs > 0) await delay(pauseMs, undefined, { signal: this.#closing.signal }).catch(() => undefined);
    try {
      const job = await super.moveToActive(token, name);
      this.#refusals = 0;
      return job;
    } catch (error) {
      this.#refusals += 1;
      throw error;
    }
  }

  /** A run says itself which trace it belongs to, whether its API process sends traces or not. */
  override processJob(...args: Parameters<Worker<RunJobData, RunOutcome>['processJob']>) {
    const [{ data, opts }] = args;
    if (data.traceparent !== undefined) opts.telemetry = { metadata: JSON.stringify(traceContextIn(data)) };
    return super.processJob(...args);
  }

  override async extendJobLocks(runIds: string[], tokens: string[], durationMs: number): Promise<string[]> {
    const askedAt = Date.now();
    const lost = await super.extendJobLocks(runIds, tokens, durationMs);
    const lostIds = new Set(lost);
    this.#renewed(
      runIds.filter((runId) => !lostIds.has(runId)),
      askedAt,
    );
    return lost;
  }
}

/** @returns milliseconds until the next attempt */
function pauseAfter(attemptsMade: number): number {
  const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (attemptsMade - 1), LONGEST_PAUSE_MS);
  return Math.round(pauseMs * (1 - JITTER * Math.random()));
}
