import { withDeadline } from '../core/deadline.ts';
import {
  CANCELLED_BY_OPERATOR,
  isTerminal,
  type Run,
  type RunAttemptRecord,
  type RunStatus,
} from '../core/run.ts';
import type { TriggeredAutomation } from './automations.ts';
import type { RedisClient } from './connect.ts';
import type { IdempotencyStore } from './idempotency.ts';
import type { RunLanes } from './lanes.ts';
import type { BullQueue, QueueOpener, RunJob } from './queue.ts';
import type { AcceptLimits, AcceptVerdict, NewRun, RunAcceptance } from './run-acceptance.ts';
import { acceptedAtOf, newRunId } from './run-id.ts';
import type { IndexPart, RunIndex } from './run-index.ts';
import { type RunStep, toAttempts, toRun, traceContextIn } from './run-record.ts';

const RUN_ID = /^run_[0-9a-f-]{36}$/;

/** Runs per batch of reads; each comes with its payload. */
const READ_BATCH = 50;

/** orc's own field of a job's hash: when an operator cancelled the executing run. */
const CANCEL_FIELD = 'cancelRequestedAt';

/**
 * Ends a run that no worker holds, which BullMQ cannot do, or records the cancellation for the worker that holds it. Atomic:
 * a run that is answered `cancelled` never starts.
 */
const CANCEL = `
  local ended = redis.call('HMGET', KEYS[1], 'name', 'finishedOn')
  if not ended[1] then return 'not_found' end
  if ended[2] then return 'ended' end
  if redis.call('LREM', KEYS[2], 0, ARGV[1]) + redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then
    redis.call('HSETNX', KEYS[1], '${CANCEL_FIELD}', ARGV[2])
    return 'requested'
  end
  redis.call('HSET', KEYS[1], 'finishedOn', ARGV[2], 'failedReason', ARGV[3])
  redis.call('ZADD', KEYS[4], ARGV[2], ARGV[1])
  return 'cancelled'`;

export interface RunFilter {
  automation?: string;
  status?: RunStatus;
  /** How many runs at most. */
  limit: number;
}

/** The run of an earlier request with the same idempotency key. */
export interface ReplayedRun {
  status: 'replayed';
  runId: string;
  /** Its current status. */
  runStatus: RunStatus;
}

/** What waits, at one moment. */
export interface QueueDepth {
  /** Runs that have not started. */
  queued: number;
  /** Runs between two attempts. */
  retrying: number;
  oldestQueuedId?: string;
  oldestQueuedAt?: Date;
}

/** What waits and what executes, at one moment. */
export interface QueueOverview extends Pick<QueueDepth, 'queued' | 'retrying'> {
  oldestQueued?: Run;
  /** The longest running first. */
  running: Run[];
}

/**
 * The queue of runs. A run is one BullMQ job whose id is the run's id; BullMQ's state of the job is the only place
 * where a run's status is kept.
 */
export class RunQueue {
  readonly #redis: RedisClient;
  readonly #queue: QueueOpener;
  readonly #acceptance: RunAcceptance;
  readonly #lanes: RunLanes;
  readonly #idempotency: IdempotencyStore;
  readonly #index: RunIndex;

  constructor(
    redis: RedisClient,
    queue: QueueOpener,
    parts: { acceptance: RunAcceptance; lanes: RunLanes; idempotency: IdempotencyStore; index: RunIndex },
  ) {
    this.#redis = redis;
    this.#queue = queue;
    this.#acceptance = parts.acceptance;
    this.#lanes = parts.lanes;
    this.#idempotency = parts.idempotency;
    this.#index = parts.index;
  }

  /**
   * Accepts a run.
   *
   * @returns the verdict; for a known idempotency key, its run with the current status
   * @throws as {@link RunAcceptance.accept} does
   */
  async accept(
    automation: TriggeredAutomation,
    run: NewRun,
    limits: AcceptLimits,
  ): Promise<Exclude<AcceptVerdict, { status: 'known' }> | ReplayedRun> {
    const verdict = await this.#acceptance.accept(automation, run, limits);
    if (verdict.status !== 'known') return verdict;
    const { runId, ended } = verdict;
    const known = await withDeadline(this.get(runId), limits.endsAt - Date.now());
    // A run that is no longer kept has ended, and how it ended was noted with the key.
    return { status: 'replayed', runId, runStatus: known?.status ?? ended ?? 'failed' };
  }

  /** How many runs wait, including those between two attempts. */
  async countQueued(): Promise<number> {
    const queue = await this.#queue.open();
    return queue.getJobCountByTypes('waiting', 'prioritized', 'delayed');
  }

  /** Whether the queue is paused, which orc itself never does. */
  async isPaused(): Promise<boolean> {
    const queue = await this.#queue.open();
    return queue.isPaused();
  }

  /** Which of these executing runs no worker holds any more. */
  async withoutLock(runIds: readonly string[]): Promise<string[]> {
    const queue = await this.#queue.open();
    const locks = await Promise.all(runIds.map((runId) => this.#redis.exists(`${queue.toKey(runId)}:lock`)));
    // Asked afterwards, as a run that has ended has no lock either.
    const active = new Set(await this.#redis.lrange(queue.toKey('active'), 0, -1));
    return runIds.filter((runId, index) => locks[index] === 0 && active.has(runId));
  }

  async get(runId: string): Promise<Run | undefined> {
    return (await this.#find(runId))?.run;
  }

  /** Every attempt at a run so far. */
  async attempts(run: Run): Promise<RunAttemptRecord[]> {
    const queue = await this.#queue.open();
    const { logs } = await queue.getJobLogs(run.id);
    return toAttempts(run, logs);
  }

  /** The newest runs that match, newest first. */
  async list(filter: RunFilter): Promise<Run[]> {
    const { status, limit } = filter;
    // By id: a run that ends meanwhile may come twice.
    const found = new Map<string, Run>();
    for await (const run of this.#newestFirst(filter)) {
      if (status === undefined || run.status === status) found.set(run.id, run);
      if (found.size === limit) break;
    }
    return [...found.values()];
  }

  async *#newestFirst({ automation, status, limit }: RunFilter): AsyncGenerator<Run> {
    const queue = await this.#queue.open();
    for await (const ids of this.#index.newestFirst(automation, partsFor(status), limit)) {
      const candidates = await this.#withFinish(queue, ids, status);
      for (let start = 0; start < candidates.length; start += READ_BATCH) {
        yield* await this.#read(queue, candidates.slice(start, start + READ_BATCH));
      }
    }
  }

  async overview(): Promise<QueueOverview> {
    const queue = await this.#queue.open();
    const [{ queued, retrying, oldestQueuedId }, activeIds] = await Promise.all([
      this.depth(),
      this.#redis.lrange(queue.toKey('active'), 0, -1),
    ]);
    const running = (await this.#read(queue, activeIds)).filter(({ status }) => status === 'running');
    running.sort((a, b) => Number(a.startedAt) - Number(b.startedAt) || (a.id < b.id ? -1 : 1));
    const oldestQueued = oldestQueuedId === undefined ? undefined : await this.get(oldestQueuedId);
    return { queued, retrying, running, ...(oldestQueued && { oldestQueued }) };
  }

  /** When the latest attempt at each run that executes began, without reading more of it. */
  async startTimes(): Promise<Date[]> {
    const queue = await this.#queue.open();
    const activeIds = await this.#redis.lrange(queue.toKey('active'), 0, -1);
    const times = await Promise.all(activeIds.map((id) => this.#redis.hget(queue.toKey(id), 'processedOn')));
    return times.flatMap((time) => (time ? [new Date(Number(time))] : []));
  }

  /** What waits, without reading any run. */
  async depth(): Promise<QueueDepth> {
    const queue = await this.#queue.open();
    const [waiting, delayed, [next], parked] = await Promise.all([
      this.#redis.llen(queue.toKey('wait')),
      this.#redis.zcard(queue.toKey('delayed')),
      this.#redis.lrange(queue.toKey('wait'), -1, -1),
      this.#lanes.parked(),
    ]);
    const oldestQueuedId = [next, ...parked.heads].filter((id) => id !== undefined).sort()[0];
    return {
      queued: waiting + parked.count,
      retrying: Math.max(delayed - parked.count, 0),
      ...(oldestQueuedId !== undefined && { oldestQueuedId, oldestQueuedAt: acceptedAtOf(oldestQueuedId) }),
    };
  }

  /** How many jobs BullMQ has in each of its states; a run that waits in a lane is one that is delayed. */
  async jobCounts(): Promise<Record<string, number>> {
    const queue = await this.#queue.open();
    return queue.getJobCounts();
  }

  /**
   * Cancels a run. A waiting run ends at once; the worker of an executing run ends it within the command's grace period.
   */
  async cancel(runId: string): Promise<'cancelled' | 'requested' | 'ended' | 'not_found'> {
    const found = await this.#find(runId);
    if (!found) return 'not_found';
    const { job } = found;
    const queue = await this.#queue.open();
    const keys = [runId, 'wait', 'delayed', 'failed'].map((name) => queue.toKey(name));
    const outcome = JSON.stringify(CANCELLED_BY_OPERATOR);
    const result = await this.#redis.eval(CANCEL, keys.length, ...keys, runId, `${Date.now()}`, outcome);
    if (result === 'cancelled') {
      await this.#idempotency.noteEnd(job.data, 'cancelled');
      await this.finish(job, { succeeded: false });
    }
    return result as 'cancelled' | 'requested' | 'ended' | 'not_found';
  }

  /** Whether an operator has cancelled this run while it was executing. */
  async isCancelRequested(runId: string): Promise<boolean> {
    const queue = await this.#queue.open();
    return (await this.#redis.hexists(queue.toKey(runId), CANCEL_FIELD)) === 1;
  }

  /**
   * Accepts a new run with the payload of one that has ended.
   *
   * @param automation the one that has the run's slug now
   * @throws as {@link RunAcceptance.accept} does
   */
  async retry(
    runId: string,
    automation: TriggeredAutomation,
    limits: AcceptLimits,
  ): Promise<AcceptVerdict | { status: 'not_found' } | { status: 'not_ended' }> {
    const found = await this.#find(runId);
    if (!found) return { status: 'not_found' };
    if (!isTerminal(found.run.status)) return { status: 'not_ended' };
    const { payload, requestId, caller } = found.job.data;
    const trace = traceContextIn(found.job.data);
    const run = { id: newRunId(), payload, requestId, ...trace, caller, retryOf: runId };
    return this.#acceptance.accept(automation, run, limits);
  }

  /** Records a step of an attempt. */
  async note(job: RunJob, step: RunStep): Promise<void> {
    await job.log(JSON.stringify(step));
  }

  /** Updates the index and the lane of an ended run. The sweep repairs what a crash prevents. */
  async finish(job: RunJob, { succeeded }: { succeeded: boolean }): Promise<void> {
    const { id = '', name: slug, data } = job;
    const leaving = data.inLane && this.#lanes.leave({ automationId: data.automationId, slug }, id);
    await Promise.all([this.#index.end(slug, id, succeeded ? Date.now() : undefined), leaving]);
  }

  async #find(runId: string): Promise<{ job: RunJob; run: Run } | undefined> {
    // Any other id could name one of BullMQ's own keys, such as the queue's `meta`.
    if (!RUN_ID.test(runId)) return undefined;
    const queue = await this.#queue.open();
    // Read before the job: a run that ends in between is then seen with its outcome.
    const position = await this.#redis.lpos(queue.toKey('active'), runId);
    const job = await queue.getJob(runId);
    return job && { job, run: toRun(job, position !== null) };
  }

  async #read(queue: BullQueue, runIds: readonly string[]): Promise<Run[]> {
    const active = new Set(await this.#redis.lrange(queue.toKey('active'), 0, -1));
    const jobs = await Promise.all(runIds.map((runId) => queue.getJob(runId)));
    return jobs.flatMap((job) => (job ? [toRun(job, active.has(job.id ?? ''))] : []));
  }

  /** Leaves out runs that cannot have the status, without reading them. */
  async #withFinish(queue: BullQueue, ids: string[], status: RunStatus | undefined): Promise<string[]> {
    if (status === undefined || !isTerminal(status)) return ids;
    const key = queue.toKey(status === 'succeeded' ? 'completed' : 'failed');
    const scores = await this.#redis.zmscore(key, ...ids);
    return ids.filter((_, index) => scores[index] !== null);
  }
}

function partsFor(status: RunStatus | undefined): IndexPart[] {
  if (status === undefined) return ['open', 'ended'];
  // The index may still list a run as open that has just ended.
  return isTerminal(status) ? ['open', 'ended'] : ['open'];
}
