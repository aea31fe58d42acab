import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** Largest page of the index; a long search takes few round trips. */
const FIRST_PAGE = 50;
const LARGEST_PAGE = 1000;

/** Runs of the earlier version adopted per script, which blocks Redis only briefly. */
const ADOPT_BATCH = 1000;

/** After this long, in milliseconds, no other run can get the same timestamp. */
const SAME_MS = 1000;

/** Longer logs are not copied at the end of their run: the saving would be small. */
const MAX_PACKED_ENTRIES = 20;

/**
 * Moves a run from the open to the ended runs, unless it has been moved or removed already. Replaces a short log by a copy:
 * Redis reserves 4 KB for a stream's next entries, but not in a copy.
 */
const END = `
  local openRuns, endedRuns, allOpenRuns, allEndedRuns, lastSuccess, runLog, packedLog = unpack(KEYS)
  local runId, slug, succeededAt = unpack(ARGV)
  if redis.call('ZREM', allOpenRuns, runId) == 1 then redis.call('ZADD', allEndedRuns, 0, runId) end
  if redis.call('ZREM', openRuns, runId) == 1 then
    redis.call('ZADD', endedRuns, 0, runId)
    if redis.call('XLEN', runLog) <= ${MAX_PACKED_ENTRIES} and redis.call('COPY', runLog, packedLog) == 1 then
      redis.call('RENAME', packedLog, runLog)
    end
  end
  if succeededAt then redis.call('HSET', lastSuccess, slug, succeededAt) end`;

/** The last members before a given one of several sorted sets. Atomic, so a run that moves is in one of them. */
const READ_PAGES = `
  local pages = {}
  for i, key in ipairs(KEYS) do
    pages[i] = redis.call('ZRANGE', key, ARGV[1], '-', 'BYLEX', 'REV', 'LIMIT', 0, ARGV[2])
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
  }

  /** @param succeededAt when the run succeeded, if it did, in milliseconds since the epoch */
  async end(slug: string, runId: string, succeededAt?: number): Promise<void> {
    const { openRuns, endedRuns, lastSuccess, runLog, packedLog } = this.#keys;
    const keys = [openRuns(slug), endedRuns(slug), openRuns(), endedRuns()];
    const values = succeededAt === undefined ? [runId, slug] : [runId, slug, succeededAt];
    await this.#redis.eval(END, 7, ...keys, lastSuccess, runLog(runId), packedLog, ...values);
  }

  /** Removes runs that are no longer kept. */
  async remove(slug: string, runIds: readonly string[]): Promise<void> {
    const { openRuns, endedRuns } = this.#keys;
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
    await this.#redis.zrem(this.#keys.formerAutomations, slug);
  }

  /** When a run of each automation last succeeded, by slug. */
  async lastSuccesses(): Promise<Map<string, Date>> {
    const found = await this.#redis.hgetall(this.#keys.lastSuccess);
    return new Map(Object.entries(found).map(([slug, time]) => [slug, new Date(Number(time))]));
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
   */
  async *newestFirst(
    slug: string | undefined,
    parts: readonly IndexPart[],
    wanted: number,
  ): AsyncGenerator<string[]> {
    const { openRuns, endedRuns } = this.#keys;
    if (slug === undefined) await this.adopt();
    const keys = parts.map((part) => (part === 'open' ? openRuns(slug) : endedRuns(slug)));
    let count = Math.min(wanted, FIRST_PAGE);
    for (let before = '+'; before !== ''; count = Math.min(count * 2, LARGEST_PAGE)) {
      const pages = (await this.#redis.eval(READ_PAGES, keys.length, ...keys, before, count)) as string[][];
      // A set with a full page may have more: only ids up to the end of every full page are complete.
      const ends = pages.flatMap((page) => (page.length === count ? page.slice(-1) : []));
      const end = ends.sort().at(-1) ?? '';
      const ids = [...new Set(pages.flat())].filter((id) => id >= end);
      if (ids.length > 0) yield ids.sort((a, b) => (a < b ? 1 : -1));
      before = end && `(${end}`;
    }
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
