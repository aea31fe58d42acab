import { DelayedError, UnrecoverableError, WaitingError } from 'bullmq';
import { withDeadline } from '../core/deadline.ts';
import type { AttemptResult, Run, RunAttempt } from '../core/run.ts';
import type { ExecutableAutomation } from '../store/automations.ts';
import { PARKED_MS } from '../store/lanes.ts';
import { JOB_FORMAT, type QueueTelemetry, type RunJob } from '../store/queue.ts';
import { isLastAttempt, type RunStep, toRun, toRunAttempt } from '../store/run-record.ts';
import { RETENTION_MS, type RetentionLimits } from '../store/run-retention.ts';
import type { Store } from '../store/store.ts';
import {
  CANCELLED,
  isOver,
  LEASE_CHECK_MS,
  type Lease,
  LOCK_LOST,
  LOCK_TIMING,
  type LockTiming,
  SHUTTING_DOWN,
} from './lease.ts';
import { retryPause } from './retry-pause.ts';
import { RunWorker } from './run-worker.ts';

/** Pause after an error of Redis, in milliseconds. BullMQ's own 15 s would leave a worker idle long after an outage. */
const RETRY_MS = 500;

/** Pause between two repairs of the lanes, in milliseconds: after a crash a run may wait that much too long. */
const TIDY_MS = 5000;

/** Pause between two checks for runs in progress that an operator has cancelled, in milliseconds. */
const CANCEL_POLL_MS = 500;

/** A run that only a newer worker can execute is offered to the workers again after this long, in milliseconds. */
const NEWER_FORMAT_PAUSE_MS = 2000;

/** After the grace period: time for commands to end and for their runs to get back into the queue, in milliseconds. */
const INTERRUPTION_MS = 7000;

/** A worker without a run waits only for Redis, which may be away; in milliseconds. */
const IDLE_CLOSE_MS = 1000;

export interface RunConsumerOptions {
  /** For what every run needs, in one order. Its connection waits while Redis is away. */
  store: Store;
  /** For everything else. Its connection fails while Redis is away. */
  side: Store;
  workerId: string;
  /** Runs executed at the same time. */
  concurrency: number;
  retentionLimits: RetentionLimits;
  /**
   * Makes one attempt; `automation` is the one that has the run's slug now. When the signal aborts, for {@link LOCK_LOST},
   * {@link SHUTTING_DOWN} or {@link CANCELLED}, it ends what it started. A run that was `interrupted` and is not lost goes
   * back to the head of the queue.
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
  /** Is told that an event waits to be sent. */
  onEvent?(): void;
  timing?: LockTiming;
  /** Makes a span for each attempt; the one that is active in `execute`. */
  telemetry?: QueueTelemetry | undefined;
}

export interface RunConsumer {
  /** Resolves when the first run can be taken. */
  ready(): Promise<void>;
  /** Takes no more runs; resolves when those in progress have ended. {@link close} may be called in the meantime. */
  drain(): Promise<void>;
  /**
   * Takes no more runs, waits for those in progress, and interrupts after `graceMs` milliseconds what is left.
   *
   * @throws DeadlineError when Redis is away, so that the runs in progress stay locked until their locks expire
   */
  close(graceMs: number): Promise<void>;
}

/** An attempt that this worker makes. */
interface Attempt {
  result: Promise<unknown>;
  interruption: AbortController;
  lease: Lease;
}

/** Takes runs from the queue, has them executed, and tells BullMQ how each attempt ended. */
export function consumeRuns(options: RunConsumerOptions): RunConsumer {
  const { store, side, workerId } = options;
  const { lockMs, stalledCheckMs, renewMs, leaseMs } = options.timing ?? LOCK_TIMING;
  const attempts = new Map<string, Attempt>();
  const background = new Set<Promise<void>>();
  let isClosing = false;
  let hasLeftRuns = false;

  const inBackground = (work: Promise<unknown>) => {
    const done = work.then(() => undefined, options.onError).finally(() => background.delete(done));
    background.add(done);
  };
  // Not waited for: one connection keeps the order in which notes are sent.
  const note = (job: RunJob, step: RunStep) => inBackground(store.runs.note(job, step));
  const isCancelled = (runId: string) => side.runs.isCancelRequested(runId).catch(() => false);

  /** Puts a run off as if it had not been taken. If that fails, it stays locked, and is another worker's when the lock has expired. */
  const putOff = async (
    job: RunJob,
    token: string,
    delayMs: number,
    fields: Record<string, unknown> = {},
  ) => {
    const fieldsToUpdate = { ats: job.attemptsStarted - 1, processedOn: '', pb: '', ...fields };
    const changes = { skipAttempt: true, fieldsToUpdate };
    const backend = worker.getBackend();
    await backend
      .moveToDelayed(job.id ?? '', Date.now(), delayMs, token, changes)
      .catch((error: Error) => options.onError(error));
  };

  /** Puts a run that a newer version accepted back, except for its place in the queue. */
  const leaveToNewer = async (job: RunJob, token = ''): Promise<never> => {
    if (!hasLeftRuns) options.onError(new Error('Runs wait for a worker of a newer version than this one.'));
    hasLeftRuns = true;
    await putOff(job, token, NEWER_FORMAT_PAUSE_MS);
    throw new DelayedError();
  };

  /** Parks a run whose automation was paused after it got into the queue. It is in its lane already. */
  const park = async (job: RunJob, token = ''): Promise<never> => {
    const { id = '', name: slug, data } = job;
    await putOff(
      job,
      token,
      PARKED_MS,
      data.inLane ? {} : { data: JSON.stringify({ ...data, inLane: true }) },
    );
    // The automation may have been resumed a moment ago.
    await store.lanes.startReleased({ automationId: data.automationId, slug }, id);
    throw new DelayedError();
  };

  const execute = async (
    job: RunJob,
    token = '',
  ): Promise<AttemptResult | 'interrupted' | 'unwanted' | 'lost'> => {
    const run = toRunAttempt(job);
    // BullMQ can still take a run while its worker closes; such a run goes back at once.
    if (isClosing) return 'unwanted';
    const earlier = attempts.get(run.id);
    if (earlier) {
      // This worker lost the run and took it again. BullMQ's worker cannot tell two attempts at one run apart, so the
      // run goes back until the earlier attempt has ended.
      lose(earlier);
      await earlier.result.catch(() => undefined);
      return 'unwanted';
    }
    // A worker that was frozen or cut off may get the answer with the run long after it asked.
    let askedAt = job.processedOn ?? Date.now();
    while (Date.now() >= askedAt + leaseMs) {
      askedAt = Date.now();
      if (!(await job.extendLock(token, lockMs).catch(() => 0))) return 'lost';
    }
    const lease = { endsAt: askedAt + leaseMs };
    const interruption = new AbortController();
    // A run that was cancelled before its first attempt never gets here.
    if (run.attempt > 1 && (await isCancelled(run.id))) interruption.abort(CANCELLED);
    const begin = async () => {
      const start = { attempt: run.attempt, worker: workerId, startedAt: Date.now() };
      const automation = await store.automations.begin(run, worker.toKey(run.id), start);
      if (automation === 'paused') return park(job, token);
      return options.execute(run, interruption.signal, lease, automation);
    };
    const result = begin().finally(() => attempts.delete(run.id));
    attempts.set(run.id, { result, interruption, lease });
    const ending = await result;
    return isOver(lease) ? 'lost' : ending;
  };

  /** Stores an attempt's result. @returns the outcome, which says so if Redis has refused it */
  const withStoredResult = async (job: RunJob, token: string, { outcome, result }: AttemptResult) => {
    if (result === undefined) return outcome;
    try {
      await store.results.write(job.id ?? '', token, result, options.retentionLimits.maxAgeMs);
      return outcome;
    } catch (error) {
      options.onError(error as Error);
      const { resultBytes: _, ...ending } = outcome;
      return { ...ending, resultProblem: 'Redis did not store the result.' };
    }
  };

  const worker = new RunWorker(
    (runIds, askedAt) => {
      for (const runId of runIds) {
        const attempt = attempts.get(runId);
        // A lease that is over stays over: the guard may have ended the attempt already.
        if (attempt && !isOver(attempt.lease)) attempt.lease.endsAt = askedAt + leaseMs;
      }
    },
    async (job, token = '') => {
      if ((job.data.format ?? 1) > JOB_FORMAT) return leaveToNewer(job, token);
      const result = await execute(job, token);
      const ending = { attempt: job.attemptsStarted, endedAt: Date.now() };
      if (result === 'interrupted') {
        note(job, { ...ending, interruption: 'the worker shut down' });
        await job.moveToWait(token);
      }
      if (result === 'unwanted') await store.runs.giveBack(job, token);
      // Tells BullMQ to leave the run as it is: back in the queue, or another worker's.
      if (typeof result === 'string') throw new WaitingError();
      const { mayRetry } = result;
      const outcome = await withStoredResult(job, token, result);
      // Noted before the run ends, so that whoever sees the run ended finds how.
      if (mayRetry && !isLastAttempt(job)) note(job, { ...ending, outcome });
      else inBackground(store.idempotency.noteEnd(job.data, outcome.status));
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
      settings: { backoffStrategy: retryPause },
    },
  );
  const finish = (job: RunJob) => {
    // Not sent again when it was lost: a Redis that was restored from a backup may have the run in its lane again.
    const finishing = side.runs.finish(job).then(({ queued, keptTotal }) => {
      if (queued > 0) options.onEvent?.();
      return side.kept.shrink(options.retentionLimits.keepBytes, keptTotal);
    });
    inBackground(finishing);
    options.onEnded?.(toRun(job, false));
  };
  worker.on('error', options.onError);
  worker.on('completed', (job) => finish(job));
  worker.on('failed', (job) => {
    if (job?.finishedOn !== undefined) finish(job);
  });
  worker.on('lockRenewalFailed', (runIds) => {
    for (const runId of runIds) lose(attempts.get(runId));
  });
  const cancelPolling = setInterval(() => {
    for (const [runId, { interruption }] of attempts) {
      void isCancelled(runId).then((wanted) => wanted && interruption.abort(CANCELLED));
    }
  }, CANCEL_POLL_MS);
  const leaseCheck = setInterval(() => {
    for (const attempt of attempts.values()) if (isOver(attempt.lease)) lose(attempt);
  }, LEASE_CHECK_MS);
  const tidying = setInterval(() => inBackground(side.lanes.tidy()), TIDY_MS);
  const sweeping = setInterval(
    () => inBackground(side.retention.takeTurn(workerId, options.retentionLimits)),
    RETENTION_MS,
  );

  return {
    ready: async () => {
      await worker.waitUntilReady();
    },
    drain: () => worker.drain(),
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

/** The run is, or soon will be, another worker's. */
function lose(attempt: Attempt | undefined): void {
  if (!attempt) return;
  attempt.lease.endsAt = Math.min(attempt.lease.endsAt, Date.now());
  attempt.interruption.abort(LOCK_LOST);
}
