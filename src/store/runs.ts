import { withDeadline } from '../core/deadline.ts';
import {
  CANCELLED_BY_OPERATOR,
  isFailure,
  isTerminal,
  type Run,
  type RunAttemptRecord,
  type RunStatus,
} from '../core/run.ts';
import type { TriggeredAutomation } from './automations.ts';
import type { RedisClient } from './connect.ts';
import { END_UNHELD } from './end-unheld.ts';
import type { IdempotencyStore } from './idempotency.ts';
import { PARKED_MS, type ParkedRuns, type RunLanes } from './lanes.ts';
import type { BullQueue, QueueOpener, RunJob } from './queue.ts';
import type { AcceptLimits, AcceptVerdict, NewRun, RunAcceptance } from './run-acceptance.ts';
import { acceptedAtOf, firstIdAt, newRunId } from './run-id.ts';
import type { IndexPart, Period, RunCursor, RunIndex } from './run-index.ts';
import { type RunStep, toAttempts, toRun, traceContextIn } from './run-record.ts';

const RUN_ID = /^run_[0-9a-f-]{36}$/;

/** Runs per batch of reads; each comes with its payload. */
const READ_BATCH = 50;

/** What {@link RunQueue.page} does at most: runs it reads, and ids it goes through. */
const PAGE_READS = 200;
const PAGE_IDS = 20_000;

/** BullMQ scores a delayed job by the time it is due, in milliseconds, times this. */
const SCORE_PER_MS = 0x1000;

/** orc's own field of a job's hash: when an operator cancelled the executing run. */
const CANCEL_FIELD = 'cancelRequestedAt';

/**
 * Ends a run that no worker holds, or records the cancellation for the worker that holds it. Atomic:
 * a run that is answered `cancelled` never starts.
 */
const CANCEL = `${END_UNHELD}
  local ended = redis.call('HMGET', KEYS[1], 'name', 'finishedOn')
  if not ended[1] then return 'not_found' end
  if ended[2] then return 'ended' end
  if redis.call('LREM', KEYS[2], 0, ARGV[1]) + redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then
    redis.call('HSETNX', KEYS[1], '${CANCEL_FIELD}', ARGV[2])
    return 'requested'
  end
  endUnheld(KEYS[1], KEYS[4], ARGV[1], ARGV[2], ARGV[3])
  return 'cancelled'`;

/** What BullMQ noted of a start that did not come about is taken back, for the worker that holds the run's lock. */
const UNSTART = `
  if redis.call('GET', KEYS[1] .. ':lock') ~= ARGV[1] then return end
  redis.call('HINCRBY', KEYS[1], 'ats', -1)
  redis.call('HDEL', KEYS[1], 'processedOn', 'pb')`;

/** `pb` and `ats` are BullMQ's names of `processedBy` and `attemptsStarted`. */
const EXECUTING = `
  local rows = {}
  local ids = tonumber(ARGV[2]) > 0 and redis.call('LRANGE', KEYS[1], 0, ARGV[2] - 1) or {}
  for _, id in ipairs(ids) do
    local fields = redis.call('HMGET', ARGV[1] .. id, 'name', 'processedOn', 'pb', 'ats')
    if fields[1] then rows[#rows + 1] = {id, unpack(fields)} end
  end
  return {redis.call('LLEN', KEYS[1]), rows}`;

export interface RunFilter extends Period {
  /** Slug. */
  automation?: string | undefined;
  /** Any of these. */
  statuses?: readonly RunStatus[] | undefined;
  /**
   * Only runs that failed or timed out, the latest end first. Then `since` and `until` are about the end of a run, else about
   * its acceptance.
   */
  failed?: boolean | undefined;
  /** How many runs at most. */
  limit: number;
}

/** Some of the runs that match a filter. */
export interface RunPage {
  runs: Run[];
  /** Where the next page begins; absent after the last one. */
  next?: RunCursor;
}

/** The run of an earlier request with the same idempotency key. */
export interface ReplayedRun {
  status: 'replayed';
  runId: string;
  /** Its current status. */
  runStatus: RunStatus;
  /** The run itself, unless it is no longer kept. */
  run?: Run;
}

/** How far a run has come. */
export interface RunProgress {
  /** Is another one whenever an attempt begins or ends, or the run is cancelled. */
  state: string;
  hasEnded: boolean;
}

/** What waits, at one moment. */
export interface QueueDepth {
  /** Runs that have not started. */
  queued: number;
  /** Those of them whose automation is paused. */
  paused: number;
  /** Runs between two attempts. */
  retrying: number;
  oldestQueuedId?: string;
  oldestQueuedAt?: Date;
}

/** A run that executes, without what it was given. */
export interface ExecutingRun {
  id: string;
  /** Slug. */
  automation: string;
  attempt: number;
  startedAt?: Date;
  worker?: string;
}

/** What waits and what executes, at one moment. */
export interface QueueOverview extends Pick<QueueDepth, 'queued' | 'paused' | 'retrying'> {
  /** Slugs of the paused automations whose runs wait, those with the most first. */
  pausedBy: string[];
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
    const verdict = await this.#accept(automation, run, limits);
    if (verdict.status !== 'known') return verdict;
    const { runId, ended } = verdict;
    const known = await withDeadline(this.get(runId), limits.endsAt - Date.now());
    // A run that is no longer kept has ended, and how it ended was noted with the key.
    const runStatus = known?.status ?? ended ?? 'failed';
    return { status: 'replayed', runId, runStatus, ...(known && { run: known }) };
  }

  /** How many runs wait, including those between two attempts. */
  async countQueued(): Promise<number> {
    const queue = await this.#queue.open();
    return queue.getJobCountByTypes('waiting', 'delayed');
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

  /**
   * How far a run has come, without reading its payload; undefined if there is no such run.
   */
  async progress(runId: string): Promise<RunProgress | undefined> {
    if (!RUN_ID.test(runId)) return undefined;
    const queue = await this.#queue.open();
    const fields = ['name', 'ats', 'atm', 'finishedOn', CANCEL_FIELD];
    const [name, started, made, endedAt, cancelled] = await this.#redis.hmget(queue.toKey(runId), ...fields);
    if (!name) return undefined;
    const state = [started ?? 0, made ?? 0, endedAt ?? '', cancelled ?? ''].join(' ');
    return { state, hasEnded: Boolean(endedAt) };
  }

  /** The JSON text of a run's payload, which is valid UTF-8, as it was received; `{}` when there was none. */
  async payload(runId: string): Promise<string | undefined> {
    return (await this.#find(runId))?.job.data.payload;
  }

  /** When the next attempt at a run may begin; `held` while its automation is paused or executes as many runs as it may. */
  async dueAt(runId: string): Promise<Date | 'held' | undefined> {
    const queue = await this.#queue.open();
    const score = await this.#redis.zscore(queue.toKey('delayed'), runId);
    if (score === null) return undefined;
    const dueAt = Math.floor(Number(score) / SCORE_PER_MS);
    return dueAt > Date.now() + PARKED_MS / 2 ? 'held' : new Date(dueAt);
  }

  /** Every attempt at a run so far. */
  async attempts(run: Run): Promise<RunAttemptRecord[]> {
    const queue = await this.#queue.open();
    const { logs } = await queue.getJobLogs(run.id);
    return toAttempts(run, logs);
  }

  /** The newest runs that match, newest first. */
  async list(filter: RunFilter): Promise<Run[]> {
    const found: Run[] = [];
    for await (const runs of this.pages(filter)) found.push(...runs);
    return found;
  }

  /** What {@link list} finds, in pages, so that any number of runs takes little memory. */
  async *pages(filter: RunFilter): AsyncGenerator<Run[]> {
    const { statuses, limit } = filter;
    const queue = await this.#queue.open();
    let missing = limit;
    for await (const ids of this.#idsOf(filter)) {
      const candidates = await this.#withFinish(queue, ids, statuses);
      for (let start = 0; start < candidates.length; start += READ_BATCH) {
        const read = await this.#read(queue, candidates.slice(start, start + READ_BATCH));
        const runs = read.filter((run) => matches(run, filter)).slice(0, missing);
        if (runs.length > 0) yield runs;
        missing -= runs.length;
        if (missing === 0) return;
      }
    }
  }

  /**
   * Some of the runs that {@link list} finds, found with a bounded number of commands: there may be fewer than `limit`, or none,
   * and yet a next page.
   *
   * @param after where the page before ended
   */
  async page(filter: RunFilter, after?: RunCursor): Promise<RunPage> {
    const queue = await this.#queue.open();
    const found: Run[] = [];
    let reads = 0;
    let passed = 0;
    for await (const ids of this.#idsOf(filter, after)) {
      const candidates = await this.#withFinish(queue, ids, filter.statuses);
      passed += ids.length;
      for (let start = 0; start < candidates.length; start += READ_BATCH) {
        const batch = candidates.slice(start, start + READ_BATCH);
        const read = await this.#read(queue, batch);
        reads += batch.length;
        found.push(...read.filter((run) => matches(run, filter)));
        if (found.length > filter.limit) return pageOf(found.slice(0, filter.limit));
        if (reads >= PAGE_READS) return pageOf(found, read.at(-1));
      }
      const last = ids.at(-1);
      if (passed >= PAGE_IDS && last !== undefined) return { runs: found, next: { runId: last } };
    }
    return { runs: found };
  }

  #idsOf(
    { automation, statuses, failed, limit, ...period }: RunFilter,
    after?: RunCursor,
  ): AsyncGenerator<string[]> {
    if (failed) return this.#index.failedFirst(automation, limit, period, after);
    if (statuses?.every((status) => status === 'running')) return this.#activeIds(period, after);
    return this.#index.newestFirst(automation, partsFor(statuses), limit, period, after);
  }

  /** The ids of the runs that workers hold, the newest first. Whose runs they are is seen when they are read. */
  async *#activeIds({ since, until }: Period, after?: RunCursor): AsyncGenerator<string[]> {
    const queue = await this.#queue.open();
    const active = await this.#redis.lrange(queue.toKey('active'), 0, -1);
    const first = since ? firstIdAt(since) : '';
    const ids = active.filter(
      (id) => id >= first && !(until && id >= firstIdAt(until)) && !(after && id >= after.runId),
    );
    if (ids.length > 0) yield ids.sort().reverse();
  }

  async overview(): Promise<QueueOverview> {
    const queue = await this.#queue.open();
    const [{ queued, paused, retrying, oldestQueuedId }, parked, activeIds] = await Promise.all([
      this.depth(),
      this.#lanes.parked(),
      this.#redis.lrange(queue.toKey('active'), 0, -1),
    ]);
    const pausedBy = parked
      .filter(({ isPaused, count }) => isPaused && count > 0)
      .sort((a, b) => b.count - a.count)
      .map(({ slug }) => slug);
    const running = (await this.#read(queue, activeIds)).filter(({ status }) => status === 'running');
    running.sort((a, b) => Number(a.startedAt) - Number(b.startedAt) || (a.id < b.id ? -1 : 1));
    const oldestQueued = oldestQueuedId === undefined ? undefined : await this.get(oldestQueuedId);
    return { queued, paused, pausedBy, retrying, running, ...(oldestQueued && { oldestQueued }) };
  }

  /**
   * When the latest attempt at each run that executes began, without reading more of it.
   *
   * @param exceptBy workers whose runs are left out
   */
  async startTimes(exceptBy: readonly string[]): Promise<Date[]> {
    const queue = await this.#queue.open();
    const activeIds = await this.#redis.lrange(queue.toKey('active'), 0, -1);
    // BullMQ's name of `processedBy` is `pb`.
    const found = await Promise.all(
      activeIds.map((id) => this.#redis.hmget(queue.toKey(id), 'processedOn', 'pb')),
    );
    return found.flatMap(([time, worker]) =>
      time && !exceptBy.includes(worker ?? '') ? [new Date(Number(time))] : [],
    );
  }

  /** How many runs execute, and the first of them, without their payloads. @param limit of those that are read */
  async executing(limit: number): Promise<{ count: number; runs: ExecutingRun[] }> {
    const queue = await this.#queue.open();
    const reply = await this.#redis.eval(EXECUTING, 1, queue.toKey('active'), queue.toKey(''), limit);
    const [count, rows] = reply as [number, [id: string, name: string, ...(string | null)[]][]];
    const runs = rows.map(([id, automation, startedAt, worker, attempt]) => ({
      id,
      automation,
      attempt: Number(attempt ?? 1),
      ...(startedAt && { startedAt: new Date(Number(startedAt)) }),
      ...(worker && { worker }),
    }));
    return { count, runs };
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
    const countOf = (lanes: readonly ParkedRuns[]) => lanes.reduce((sum, { count }) => sum + count, 0);
    const paused = parked.filter(({ isPaused }) => isPaused);
    // A run of a paused automation waits on purpose, however long.
    const heads = parked.filter(({ isPaused }) => !isPaused).map(({ first }) => first);
    const oldestQueuedId = [next, ...heads].filter((id) => id !== undefined).sort()[0];
    return {
      queued: waiting + countOf(parked),
      paused: countOf(paused),
      retrying: Math.max(delayed - countOf(parked), 0),
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
      // What the script has changed belongs to the event.
      await this.finish((await queue.getJob(runId)) ?? job);
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
    newId = newRunId(),
  ): Promise<AcceptVerdict | { status: 'not_found' } | { status: 'not_ended' }> {
    const found = await this.#find(runId);
    if (!found) return { status: 'not_found' };
    if (!isTerminal(found.run.status)) return { status: 'not_ended' };
    const { payload, requestId, caller } = found.job.data;
    const trace = traceContextIn(found.job.data);
    const run = { id: newId, payload, requestId, ...trace, caller, retryOf: runId };
    return this.#accept(automation, run, limits);
  }

  /** Puts a run that was taken back to the head of the queue; no attempt is counted. */
  async giveBack(job: RunJob, token: string): Promise<void> {
    const queue = await this.#queue.open();
    await this.#redis.eval(UNSTART, 1, queue.toKey(job.id ?? ''), token);
    await job.moveToWait(token);
  }

  /** Records a step of an attempt. */
  async note(job: RunJob, step: RunStep): Promise<void> {
    await job.log(JSON.stringify(step));
  }

  /**
   * Updates the index and the lane of an ended run, and queues its event. The sweep repairs what a crash prevents.
   *
   * @param job as it ended
   * @returns as {@link RunIndex.end}
   */
  async finish(job: RunJob): Promise<{ queued: number; keptTotal: number }> {
    const { id = '', name: slug, data } = job;
    const { automationId } = data;
    const leaving = data.inLane && this.#lanes.leave({ automationId, slug }, id);
    const [ending] = await Promise.all([
      this.#index.end(slug, id, { run: toRun(job, false), automationId }),
      leaving,
    ]);
    return ending;
  }

  async #accept(automation: TriggeredAutomation, run: NewRun, limits: AcceptLimits): Promise<AcceptVerdict> {
    const verdict = await this.#acceptance.accept(automation, run, limits);
    if (verdict.status !== 'accepted' || !verdict.isSkipped) return verdict;
    const { isSkipped: _, ...accepted } = verdict;
    // The run is accepted whatever happens now; the sweep repairs what fails.
    const finishing = this.#finishSkipped(verdict.runId);
    await withDeadline(finishing, limits.endsAt - Date.now()).catch(() => undefined);
    return accepted;
  }

  async #finishSkipped(runId: string): Promise<void> {
    const queue = await this.#queue.open();
    const job = await queue.getJob(runId);
    if (job) await this.finish(job);
  }

  async #find(runId: string): Promise<{ job: RunJob; run: Run } | undefined> {
    // Any other id could name one of BullMQ's own keys, such as the queue's `meta`.
    if (!RUN_ID.test(runId)) return undefined;
    const queue = await this.#queue.open();
    // Read before the job: a run that ends in between is then seen with its outcome.
    const position = await this.#redis.lpos(queue.toKey('active'), runId);
    const job = await queue.getJob(runId);
    return job && { job, run: toRun(job, position !== null, await this.#firstStep(queue, job)) };
  }

  async #read(queue: BullQueue, runIds: readonly string[]): Promise<Run[]> {
    const active = new Set(await this.#redis.lrange(queue.toKey('active'), 0, -1));
    const jobs = await Promise.all(runIds.map((runId) => queue.getJob(runId)));
    const found = jobs.filter((job) => job !== undefined);
    const firstSteps = await Promise.all(found.map((job) => this.#firstStep(queue, job)));
    return found.map((job, index) => toRun(job, active.has(job.id ?? ''), firstSteps[index]));
  }

  /** BullMQ knows the start of the latest attempt only, and none of a run that was put back before its next attempt. */
  async #firstStep(queue: BullQueue, { id, attemptsStarted, processedOn }: RunJob): Promise<string | null> {
    const isUnknown = attemptsStarted > 1 || (attemptsStarted === 1 && !processedOn);
    return isUnknown ? this.#redis.lindex(`${queue.toKey(id ?? '')}:logs`, 0) : null;
  }

  /** Leaves out runs that cannot have one of the statuses, without reading them. */
  async #withFinish(
    queue: BullQueue,
    ids: string[],
    statuses: readonly RunStatus[] | undefined,
  ): Promise<string[]> {
    const sets = new Set(statuses?.map(setOf));
    if (sets.size === 0 || sets.has(undefined)) return ids;
    const keys = [...sets].map((set) => queue.toKey(set ?? ''));
    const scores = await Promise.all(keys.map((key) => this.#redis.zmscore(key, ...ids)));
    return ids.filter((_, index) => scores.some((each) => each[index] !== null));
  }
}

/** The sorted set of BullMQ in which all runs of a status are, among others. */
function setOf(status: RunStatus): 'completed' | 'failed' | 'delayed' | undefined {
  if (status === 'succeeded') return 'completed';
  if (status === 'retrying') return 'delayed';
  return isTerminal(status) ? 'failed' : undefined;
}

/** What the index does not tell of a run. */
function matches({ automation, status }: Run, { automation: slug, statuses, failed }: RunFilter): boolean {
  if (slug !== undefined && automation !== slug) return false;
  return (statuses === undefined || statuses.includes(status)) && (!failed || isFailure(status));
}

/** @param last the last run that was looked at */
function pageOf(runs: Run[], last = runs.at(-1)): RunPage {
  return last ? { runs, next: { runId: last.id, endedAt: last.endedAt } } : { runs };
}

function partsFor(statuses: readonly RunStatus[] | undefined): IndexPart[] {
  // The index may still list a run as open that has just ended.
  return statuses === undefined || statuses.some(isTerminal) ? ['open', 'ended'] : ['open'];
}
