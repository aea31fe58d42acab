import type { Result } from 'ioredis';
import { isFailure, isTerminal, type Run } from '../core/run.ts';
import { eventBody, eventIdOf } from '../core/run-event.ts';
import type { RedisClient } from './connect.ts';
import { QUEUE_EVENTS } from './event-outbox.ts';
import { KEPT_FIELD, TOTAL_FIELD } from './kept-bytes.ts';
import type { Keys } from './keys.ts';
import { QUEUE_NAME } from './queue.ts';
import { COUNT_RUN, countsOfEnd } from './run-counts.ts';
import { firstIdAt } from './run-id.ts';
import { outcomeOf } from './run-record.ts';

/** Largest page of the index; a long search takes few round trips. */
const FIRST_PAGE = 50;
const LARGEST_PAGE = 1000;

/** Runs of the earlier version adopted per script, which blocks Redis only briefly. */
const ADOPT_BATCH = 1000;

/** After this long, in milliseconds, no other run can get the same timestamp. */
const SAME_MS = 1000;

/** How far back, in milliseconds, a sweep looks again for runs that failed: clocks of workers differ. */
const ADOPT_OVERLAP_MS = 60_000;

/** Longer logs are not copied at the end of their run: the saving would be small. */
const MAX_PACKED_ENTRIES = 20;

/** The keys of {@link END}, in order. */
const END_KEYS = [
  ...['openRuns', 'endedRuns', 'allOpenRuns', 'allEndedRuns', 'lastSuccess', 'runLog', 'packedLog', 'job'],
  ...['failedRuns', 'allFailedRuns', 'automation', 'result', 'eventQueues', 'eventTurns', 'eventFailures'],
  ...['eventBytes', 'eventDrops', 'endQueue', 'endBodies', 'failureQueue', 'failureBodies'],
  ...['artifacts', 'keptBytes', 'acceptedCounts', 'endedCounts', 'steps'],
] as const;

/**
 * Moves a run from the open to the ended runs, unless it has been moved or removed already, and lists it as failed if it is.
 * In the same step it queues the run's event: a run that is open, whatever has happened, still has to be given its event, and
 * one that is not has been. Counts the run, and what is kept with it. Returns how many events it queued, and the bytes that are
 * kept with all runs.
 *
 * Does nothing to a run that has not ended: a Redis restored from a backup may have the run of a late command in the queue again.
 * Replaces a short log by a copy: Redis reserves 4 KB for a stream's next entries, but not in a copy. Drops what nobody reads
 * of an ended run: fields of the job, and the step of an only attempt, whose worker and start are in the job.
 */
const END = `${QUEUE_EVENTS}${COUNT_RUN}
  local ${END_KEYS.join(', ')} = unpack(KEYS)
  local runId, slug, succeededAt, automationId, eventId, body, isFailure, hasResult, acceptedField, endedField = unpack(ARGV)
  local name, endedAt, succeeded, reason, attempts =
    unpack(redis.call('HMGET', job, 'name', 'finishedOn', 'returnvalue', 'failedReason', 'ats'))
  if name and not endedAt then return {0, 0} end
  local queued = 0
  if redis.call('ZREM', allOpenRuns, runId) == 1 then redis.call('ZADD', allEndedRuns, 0, runId) end
  if redis.call('ZREM', openRuns, runId) == 1 then
    redis.call('ZADD', endedRuns, 0, runId)
    if redis.call('XLEN', runLog) <= ${MAX_PACKED_ENTRIES} and redis.call('COPY', runLog, packedLog) == 1 then
      redis.call('RENAME', packedLog, runLog)
    end
    if endedAt then
      redis.call('HDEL', job, 'delay', 'priority')
      if attempts == '1' and redis.call('LLEN', steps) == 1 then redis.call('DEL', steps) end
    end
    local kept = 0
    for _, key in ipairs({runLog, result, artifacts}) do
      local usage = redis.pcall('MEMORY', 'USAGE', key, 'SAMPLES', 0)
      if type(usage) == 'number' then kept = kept + usage end
    end
    if kept > 0 and name then
      redis.call('HSET', job, '${KEPT_FIELD}', kept)
      redis.call('HINCRBY', keptBytes, slug, kept)
      redis.call('HINCRBY', keptBytes, '${TOTAL_FIELD}', kept)
    end
    if endedAt and body ~= '' then
      countRun(acceptedCounts, acceptedField)
      countRun(endedCounts, endedField)
      queued = queueEvents({
        id = eventId, body = body, slug = slug, automationId = automationId, isFailure = isFailure == '1',
        hasResult = hasResult == '1', job = job, automation = automation, result = result, eventQueues = eventQueues,
        eventTurns = eventTurns, eventFailures = eventFailures, eventBytes = eventBytes, eventDrops = eventDrops,
        endQueue = endQueue, endBodies = endBodies, failureQueue = failureQueue, failureBodies = failureBodies,
      })
    end
  end
  local keptTotal = tonumber(redis.call('HGET', keptBytes, '${TOTAL_FIELD}') or 0)
  if succeededAt ~= '' and tonumber(succeededAt) > tonumber(redis.call('HGET', lastSuccess, slug) or '0') then
    redis.call('HSET', lastSuccess, slug, succeededAt)
  end
  if succeededAt ~= '' or not endedAt or succeeded then return {queued, keptTotal} end
  local isJson, outcome = pcall(cjson.decode, reason)
  if isJson and type(outcome) == 'table' and outcome.status == 'cancelled' then return {queued, keptTotal} end
  redis.call('ZADD', failedRuns, endedAt, runId)
  redis.call('ZADD', allFailedRuns, endedAt, runId)
  return {queued, keptTotal}`;

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** {@link END}, sent by its hash, or in full to a Redis that does not know it. */
    orcEndRun(...keysAndArguments: (string | number)[]): Result<[queued: number, keptTotal: number], Context>;
  }
}

/**
 * Finds runs that are listed as open and have ended. Returns how many runs it looked at, the last one's id, and those.
 */
const ENDED_OPEN = `
  local openRuns, completed, failed = unpack(KEYS)
  local runIds = redis.call('ZRANGE', openRuns, ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ${LARGEST_PAGE})
  if #runIds == 0 then return {0, '', {}} end
  local ended = {}
  local completedAt = redis.call('ZMSCORE', completed, unpack(runIds))
  local failedAt = redis.call('ZMSCORE', failed, unpack(runIds))
  for i, runId in ipairs(runIds) do
    if completedAt[i] or failedAt[i] then ended[#ended + 1] = runId end
  end
  return {#runIds, runIds[#runIds], ended}`;

/** The last members between two of several sorted sets. Atomic, so a run that moves is in one of them. */
const READ_PAGES = `
  local pages = {}
  for i, key in ipairs(KEYS) do
    pages[i] = redis.call('ZRANGE', key, ARGV[1], ARGV[2], 'BYLEX', 'REV', 'LIMIT', 0, ARGV[3])
  end
  return pages`;

/** Adds the next members of one sorted set to another one. Returns the last of them. */
const ADOPT = `
  local runIds = redis.call('ZRANGE', KEYS[1], ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ${ADOPT_BATCH})
  for _, runId in ipairs(runIds) do redis.call('ZADD', KEYS[2], 0, runId) end
  return runIds[#runIds]`;

/** Forgets what was noted of an automation, unless it was noted again. */
const ADOPTED = `
  if redis.call('ZSCORE', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('ZREM', KEYS[1], ARGV[1]) end`;

/** A run that has ended, and the automation that accepted it. */
export interface EndedRun {
  run: Run;
  automationId: string;
}

/** The arguments of {@link END} after the run's id and its slug. */
function valuesOf(ended: EndedRun | undefined): (string | number)[] {
  if (!ended || !isTerminal(ended.run.status)) return ['', '', '', '', '', '', '', ''];
  const { run, automationId } = ended;
  const { status } = ended.run;
  const counts = countsOf(ended);
  return [
    status === 'succeeded' ? (run.endedAt ?? new Date()).getTime() : '',
    automationId,
    eventIdOf(run.id, status),
    eventBody(run, status),
    isFailure(status) ? '1' : '',
    run.outcome?.resultBytes === undefined ? '' : '1',
    counts?.accepted.field ?? '',
    counts?.ended.field ?? '',
  ];
}

/** Where a run is counted; undefined when it is gone. */
function countsOf(ended: EndedRun | undefined) {
  if (!ended || !isTerminal(ended.run.status)) return undefined;
  const { id, status, endedAt = new Date() } = ended.run;
  return countsOfEnd(id, status, endedAt);
}

/** A half-open period of time: from `since` to before `until`. */
export interface Period {
  since?: Date | undefined;
  until?: Date | undefined;
}

/** A place in a list of runs: what follows this run. */
export interface RunCursor {
  runId: string;
  /** When it ended; only in a list of failed runs. */
  endedAt?: Date | undefined;
}

/** The two halves of the index. */
export type IndexPart = 'open' | 'ended';

/**
 * The ids of the runs of each automation and of all automations, in order of acceptance. BullMQ holds the status of runs:
 * after a crash, the index may list an ended run as open until it is tidied.
 */
export class RunIndex {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
    redis.defineCommand('orcEndRun', { lua: END, numberOfKeys: END_KEYS.length });
  }

  /**
   * Moves an ended run, and queues its event.
   *
   * @param ended the run as it ended; absent when it is gone, and then has no event
   * @returns how many events were queued, and the bytes that are kept with all runs, see `KeptBytes`
   */
  async end(slug: string, runId: string, ended?: EndedRun): Promise<{ queued: number; keptTotal: number }> {
    const { openRuns, endedRuns, failedRuns, eventQueue, eventBodies, runCounts } = this.#keys;
    const counts = countsOf(ended);
    const keys: Record<(typeof END_KEYS)[number], string> = {
      ...this.#keys,
      openRuns: openRuns(slug),
      endedRuns: endedRuns(slug),
      allOpenRuns: this.#keys.openRuns(),
      allEndedRuns: this.#keys.endedRuns(),
      runLog: this.#keys.runLog(runId),
      job: this.#queueKey(runId),
      steps: this.#queueKey(`${runId}:logs`),
      failedRuns: failedRuns(slug),
      allFailedRuns: failedRuns(),
      automation: this.#keys.automation(slug),
      result: this.#keys.result(runId),
      artifacts: this.#keys.artifacts(runId),
      acceptedCounts: runCounts(`${counts?.accepted.hour}`),
      endedCounts: runCounts(`${counts?.ended.hour}`),
      endQueue: eventQueue(slug, 'onEnd'),
      endBodies: eventBodies(slug, 'onEnd'),
      failureQueue: eventQueue(slug, 'onFailure'),
      failureBodies: eventBodies(slug, 'onFailure'),
    };
    const named = END_KEYS.map((name) => keys[name]);
    const [queued, keptTotal] = await this.#redis.orcEndRun(...named, runId, slug, ...valuesOf(ended));
    return { queued, keptTotal };
  }

  /** The runs of an automation that have ended and are still listed as open, which a crash has left. */
  async *endedButOpen(slug: string): AsyncGenerator<string[]> {
    const keys = [this.#keys.openRuns(slug), this.#queueKey('completed'), this.#queueKey('failed')];
    for (let after = '-', isLast = false; !isLast; ) {
      const page = await this.#redis.eval(ENDED_OPEN, keys.length, ...keys, after);
      const [count, last, runIds] = page as [number, string, string[]];
      if (runIds.length > 0) yield runIds;
      after = `(${last}`;
      isLast = count < LARGEST_PAGE;
    }
  }

  /** Removes runs that are no longer kept. */
  async remove(slug: string, runIds: readonly string[]): Promise<void> {
    const { openRuns, endedRuns, failedRuns } = this.#keys;
    await this.#redis.zrem(failedRuns(), ...runIds);
    await this.#redis.zrem(failedRuns(slug), ...runIds);
    // The automation's part last: until it is done, the next sweep finds them again.
    await this.#redis.zrem(openRuns(), ...runIds);
    await this.#redis.zrem(endedRuns(), ...runIds);
    await this.#redis.zrem(endedRuns(slug), ...runIds);
  }

  /** Slugs of all automations that may have runs, deleted ones included. */
  async slugs(): Promise<string[]> {
    const { automations, formerAutomations } = this.#keys;
    const [current, former] = await Promise.all([
      this.#redis.zrange(automations, 0, '-1'),
      this.#redis.zrange(formerAutomations, 0, '-1'),
    ]);
    return [...new Set([...current, ...former])];
  }

  /** Removes a deleted automation without runs. */
  async forget(slug: string): Promise<void> {
    await this.#redis.del(this.#keys.failedRuns(slug));
    await this.#redis.zrem(this.#keys.formerAutomations, slug);
  }

  /** When a run of each automation last succeeded, by slug. */
  async lastSuccesses(): Promise<Map<string, Date>> {
    const found = await this.#redis.hgetall(this.#keys.lastSuccess);
    return new Map(Object.entries(found).map(([slug, time]) => [slug, new Date(Number(time))]));
  }

  /** When a run of an automation last succeeded. */
  async lastSuccess(slug: string): Promise<Date | undefined> {
    const time = await this.#redis.hget(this.#keys.lastSuccess, slug);
    return time === null ? undefined : new Date(Number(time));
  }

  /** How many runs of each of these automations have not ended, in the same order. */
  async countOpen(slugs: readonly string[]): Promise<number[]> {
    return Promise.all(slugs.map((slug) => this.#redis.zcard(this.#keys.openRuns(slug))));
  }

  /**
   * Pages of run ids, the newest first.
   *
   * @param slug limits the runs to one automation
   * @param wanted expected number of runs, the size of the first page
   * @param accepted limits the runs to those accepted in this period
   * @param after the list begins after this run
   */
  async *newestFirst(
    slug: string | undefined,
    parts: readonly IndexPart[],
    wanted: number,
    { since, until }: Period = {},
    after?: RunCursor,
  ): AsyncGenerator<string[]> {
    const { openRuns, endedRuns } = this.#keys;
    const latest = [until && firstIdAt(until), after?.runId].filter((id) => id !== undefined).sort()[0];
    if (slug === undefined) await this.adopt();
    const keys = parts.map((part) => (part === 'open' ? openRuns(slug) : endedRuns(slug)));
    const first = since ? `[${firstIdAt(since)}` : '-';
    let count = Math.min(wanted, FIRST_PAGE);
    for (
      let before = latest === undefined ? '+' : `(${latest}`;
      before !== '';
      count = Math.min(count * 2, LARGEST_PAGE)
    ) {
      const pages = (await this.#redis.eval(
        READ_PAGES,
        keys.length,
        ...keys,
        before,
        first,
        count,
      )) as string[][];
      // A set with a full page may have more: only ids up to the end of every full page are complete.
      const ends = pages.flatMap((page) => (page.length === count ? page.slice(-1) : []));
      const end = ends.sort().at(-1) ?? '';
      const ids = [...new Set(pages.flat())].filter((id) => id >= end);
      if (ids.length > 0) yield ids.sort((a, b) => (a < b ? 1 : -1));
      before = end && `(${end}`;
    }
  }

  /**
   * Pages of the ids of runs that failed or timed out, the latest end first.
   *
   * @param slug limits the runs to one automation
   * @param wanted expected number of runs, the size of the first page
   * @param ended limits the runs to those that ended in this period
   * @param after the list begins after this run
   */
  async *failedFirst(
    slug: string | undefined,
    wanted: number,
    { since, until }: Period = {},
    after?: RunCursor,
  ): AsyncGenerator<string[]> {
    await this.prepareFailed();
    const key = this.#keys.failedRuns(slug);
    const oldest = since ? `${since.getTime()}` : '-inf';
    const next = (latest: string, offset: number, count: number) =>
      this.#redis.zrevrangebyscore(key, latest, oldest, 'WITHSCORES', 'LIMIT', offset, count);
    const lastScore = after?.endedAt ? `${after.endedAt.getTime()}` : undefined;
    const start = lastScore ?? (until ? `(${until.getTime()}` : '+inf');
    for await (const page of pagesByScore(next, start, Math.min(wanted, FIRST_PAGE))) {
      // Runs that ended in the same millisecond come in the order of their ids, the greatest first.
      const further = page.filter(([runId, score]) => score !== lastScore || runId < (after?.runId ?? ''));
      if (further.length > 0) yield further.map(([runId]) => runId);
    }
  }

  /** How many kept runs of each of these automations failed or timed out since a time, in the same order. */
  async countFailed(slugs: readonly string[], since: Date): Promise<number[]> {
    await this.prepareFailed();
    const count = (slug: string) => this.#redis.zcount(this.#keys.failedRuns(slug), since.getTime(), '+inf');
    return Promise.all(slugs.map(count));
  }

  /** How many kept runs of each of these automations were accepted since a time, in the same order. */
  async countAccepted(slugs: readonly string[], since: Date): Promise<number[]> {
    const { openRuns, endedRuns } = this.#keys;
    const first = `[${firstIdAt(since)}`;
    const count = async (slug: string) => {
      const halves = [openRuns(slug), endedRuns(slug)].map((key) => this.#redis.zlexcount(key, first, '+'));
      const [open = 0, ended = 0] = await Promise.all(halves);
      return open + ended;
    };
    return Promise.all(slugs.map(count));
  }

  /** The id of the newest run of an automation, or of all. */
  async newest(slug: string | undefined): Promise<string | undefined> {
    for await (const [runId] of this.newestFirst(slug, ['open', 'ended'], 1)) return runId;
    return undefined;
  }

  /** The first ids, at most `limit`, that begin with this text, which must not be more than the beginning of an id. */
  async startingWith(text: string, limit: number): Promise<string[]> {
    await this.adopt();
    const { openRuns, endedRuns } = this.#keys;
    const find = (key: string) => this.#redis.zrangebylex(key, `[${text}`, `(${text}~`, 'LIMIT', 0, limit);
    const found = await Promise.all([find(openRuns()), find(endedRuns())]);
    return [...new Set(found.flat())].sort().slice(0, limit);
  }

  /**
   * Adds to the failed runs those that processes of the earlier version have ended, which do not know this part of the index.
   * They are in BullMQ's set of failed jobs, next to cancelled ones.
   */
  async adoptFailed(): Promise<void> {
    const { failedRuns, failedAdopted } = this.#keys;
    const since = Number((await this.#redis.get(failedAdopted)) ?? 0) - ADOPT_OVERLAP_MS;
    const next = (earliest: string, offset: number, count: number) =>
      this.#redis.zrangebyscore(
        this.#queueKey('failed'),
        earliest,
        '+inf',
        'WITHSCORES',
        'LIMIT',
        offset,
        count,
      );
    for await (const page of pagesByScore(next, `${since}`, LARGEST_PAGE)) {
      const known = await this.#redis.zmscore(failedRuns(), ...page.map(([runId]) => runId));
      const unknown = page.filter((_, position) => known[position] === null);
      const adopting = unknown.map(async ([runId, endedAt]) => {
        const [slug, reason] = await this.#redis.hmget(this.#queueKey(runId), 'name', 'failedReason');
        if (!slug || !isFailure(outcomeOf({ failedReason: reason ?? '' })?.status)) return;
        await this.#redis.zadd(failedRuns(slug), endedAt, runId);
        await this.#redis.zadd(failedRuns(), endedAt, runId);
      });
      await Promise.all(adopting);
      await this.#redis.set(failedAdopted, page.at(-1)?.[1] ?? since);
    }
    await this.#redis.set(failedAdopted, Math.max(since + ADOPT_OVERLAP_MS, 0), 'NX');
  }

  /** Sees to it that the set of failed runs is complete, until a worker of this version has swept once. */
  async prepareFailed(): Promise<void> {
    if ((await this.#redis.exists(this.#keys.failedAdopted)) === 0) await this.adoptFailed();
  }

  /** Drops failed runs that the earlier version has removed: none is kept that ended before this time. */
  async dropFailed(slugs: readonly string[], endedBefore: number): Promise<void> {
    const { failedRuns } = this.#keys;
    const drop = (key: string) => this.#redis.zremrangebyscore(key, '-inf', `(${endedBefore}`);
    // What is in an automation's set is in that of all, too.
    if ((await drop(failedRuns())) > 0) await Promise.all(slugs.map((slug) => drop(failedRuns(slug))));
  }

  #queueKey(name: string): string {
    return `${this.#keys.queuePrefix}:${QUEUE_NAME}:${name}`;
  }

  /**
   * Adds runs that processes of the earlier version have accepted to the index of all automations, which they do not know.
   * They record the automations of such runs.
   */
  async adopt(): Promise<void> {
    const { latestRuns, openRuns, endedRuns } = this.#keys;
    const startedAt = Date.now();
    const noted = await this.#redis.zrange(latestRuns, 0, '-1', 'WITHSCORES');
    for (let index = 0; index < noted.length; index += 2) {
      const [slug = '', acceptedAt = ''] = noted.slice(index, index + 2);
      // In this order, a run that ends in the meantime is found in the second set.
      await this.#adoptAll(openRuns(slug), openRuns());
      await this.#adoptAll(endedRuns(slug), endedRuns());
      // An automation that was recorded again in the meantime is adopted again next time.
      if (Number(acceptedAt) < startedAt - SAME_MS) {
        await this.#redis.eval(ADOPTED, 1, latestRuns, slug, acceptedAt);
      }
    }
  }

  async #adoptAll(from: string, to: string): Promise<void> {
    let last: unknown = '';
    do {
      last = await this.#redis.eval(ADOPT, 2, from, to, last === '' ? '-' : `(${last}`);
    } while (last !== null);
  }
}

/**
 * Pages of a sorted set in the order of scores, with ids and scores. Entries that come or go before the position do not
 * shift it.
 *
 * @param next reads `count` members from a score on, without the first `offset` ones
 */
async function* pagesByScore(
  next: (from: string, offset: number, count: number) => Promise<string[]>,
  start: string,
  firstCount: number,
): AsyncGenerator<[runId: string, score: string][]> {
  let from = start;
  let offset = 0;
  for (let count = firstCount; ; count = Math.min(count * 2, LARGEST_PAGE)) {
    const reply = await next(from, offset, count);
    const page: [string, string][] = [];
    for (let index = 0; index < reply.length; index += 2)
      page.push([reply[index] ?? '', reply[index + 1] ?? '']);
    if (page.length > 0) yield page;
    const last = page.at(-1)?.[1];
    if (page.length < count || last === undefined) return;
    // Members with the last score may follow on the next page.
    const seen = page.filter(([, score]) => score === last).length;
    offset = last === from ? offset + seen : seen;
    from = last;
  }
}
