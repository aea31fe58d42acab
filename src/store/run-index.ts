import type { Result } from 'ioredis';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { Transaction } from './queue.ts';
import { acceptedAtOf, startOfMs } from './run-id.ts';

/** A page of the index grows up to this many runs, so that a long search takes few round trips. */
const FIRST_PAGE = 50;
const LARGEST_PAGE = 1000;

/** A log of more entries is not copied at its run's end: beside them, the room that is kept for more is little. */
const MAX_PACKED_ENTRIES = 20;

/**
 * Moves a run to those that have ended; one that has been moved already, or is kept no longer, stays where it is. Redis
 * keeps 4 KB of room for a stream's next entries, but not in a copy of it, so that a copy takes the place of a short log.
 */
const END = `
  if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
    redis.call('ZADD', KEYS[2], 0, ARGV[1])
    if redis.call('XLEN', KEYS[4]) <= ${MAX_PACKED_ENTRIES} and redis.call('COPY', KEYS[4], KEYS[5]) == 1 then
      redis.call('RENAME', KEYS[5], KEYS[4])
    end
  end
  if ARGV[3] then redis.call('HSET', KEYS[3], ARGV[2], ARGV[3]) end`;

/** The last members of sorted sets, all from one on, and each before its own or all before the only one. Together, as a command for each would take longer than its work. */
const READ_PAGES = `
  local pages = {}
  for i, key in ipairs(KEYS) do
    pages[i] = redis.call('ZRANGE', key, ARGV[i + 2] or ARGV[3], ARGV[2], 'BYLEX', 'REV', 'LIMIT', 0, ARGV[1])
  end
  return pages`;

/**
 * So many automations more than runs are wanted are read at first, and so many if that does not show which of them had
 * their latest run in the same millisecond as the last one that is wanted.
 */
const FEW_MORE = 10;
const MANY_MORE = 100;

/** So many automations are read from together, so that Redis does not keep others waiting. */
const READ_TOGETHER = 50;

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** {@link END}, sent by its hash. */
    orcEndRun(
      openRuns: string,
      endedRuns: string,
      lastSuccess: string,
      runLog: string,
      packedLog: string,
      ...values: string[]
    ): Result<null, Context>;
  }
}

/** One automation's part of the index, and the end of it that was not read yet, as ZRANGE takes it; '' is none. */
interface Source {
  keys: string[];
  before: string;
}

/** The two halves of the index. */
export type IndexPart = 'open' | 'ended';

/**
 * Which runs each automation has, in order of acceptance, which is the order of their ids. What runs are and how they
 * stand is BullMQ's to say: after a crash a run may be listed as open that has ended, until the index is tidied.
 */
export class RunIndex {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
    redis.defineCommand('orcEndRun', { numberOfKeys: 5, lua: END });
  }

  /** Adds to what enqueues a run what makes it be found. @returns what the commands return */
  add(transaction: Transaction, slug: string, runId: string): unknown[] {
    const { latestRuns, openRuns } = this.#keys;
    return [
      transaction.runCommand('zadd', [openRuns(slug), 0, runId]),
      transaction.runCommand('zadd', [latestRuns, 'GT', acceptedAtOf(runId).getTime(), slug]),
    ];
  }

  /** @param succeededAt when the run succeeded, if it did, in milliseconds since the epoch */
  async end(slug: string, runId: string, succeededAt?: number): Promise<void> {
    const { openRuns, endedRuns, lastSuccess, runLog, packedLog } = this.#keys;
    const keys = [openRuns(slug), endedRuns(slug), lastSuccess, runLog(runId), packedLog] as const;
    const values = succeededAt === undefined ? [runId, slug] : [runId, slug, `${succeededAt}`];
    await this.#redis.orcEndRun(...keys, ...values);
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

  /** Forgets a deleted automation that has no runs any more. */
  async forget(slug: string): Promise<void> {
    const { formerAutomations, latestRuns } = this.#keys;
    await Promise.all([this.#redis.zrem(formerAutomations, slug), this.#redis.zrem(latestRuns, slug)]);
  }

  /** Which of these automations no latest run is noted for: they have none, or only runs of a version that noted none. */
  async withoutLatest(slugs: readonly string[]): Promise<string[]> {
    const known = new Set(await this.#redis.zrange(this.#keys.latestRuns, 0, '-1'));
    return slugs.filter((slug) => !known.has(slug));
  }

  /** Makes up for a latest run that was not noted. */
  async noteLatest(slug: string): Promise<void> {
    const { latestRuns, openRuns, endedRuns } = this.#keys;
    const newest = await Promise.all(
      [openRuns(slug), endedRuns(slug)].map((key) => this.#redis.zrange(key, -1, '-1')),
    );
    const runId = newest.flat().sort().at(-1);
    if (runId !== undefined) await this.#redis.zadd(latestRuns, 'GT', acceptedAtOf(runId).getTime(), slug);
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
   * The ids of runs in pages, the newest run first; a run may come twice.
   *
   * @param slug of the only automation whose runs are wanted
   * @param wanted how many runs are wanted, as far as is known: what is read at first
   */
  async *newestFirst(
    slug: string | undefined,
    parts: readonly IndexPart[],
    wanted: number,
  ): AsyncGenerator<string[]> {
    const first = slug === undefined ? await this.#latest(wanted) : { slugs: [slug], oldest: '', rest: '' };
    let sources = this.#sourcesOf(first.slugs, parts);
    // What the automations that were not looked at yet can have is older than this.
    let { oldest, rest } = first;
    let hungry = sources;
    let pending: string[] = [];
    for (
      let count = Math.min(wanted, FIRST_PAGE);
      hungry.length > 0 || rest !== '';
      count = Math.min(count * 2, LARGEST_PAGE)
    ) {
      for (const ids of await this.#nextPages(hungry, count, oldest)) pending.push(...ids);
      oldest = '';
      sources = sources.filter(({ before }) => before !== '');
      // Nothing newer than this can still come from any source.
      const frontier = [...sources.map(({ before }) => before), rest].sort().at(-1) ?? '';
      pending.sort((a, b) => (a < b ? 1 : -1));
      const end = pending.findIndex((id) => `(${id}` < frontier);
      const ready = end === -1 ? pending : pending.slice(0, end);
      pending = pending.slice(ready.length);
      if (ready.length > 0) yield ready;
      if (rest !== '' && frontier === rest) {
        // All at once, so that none is missed which has a new run meanwhile and so comes earlier in their order.
        const known = new Set(first.slugs);
        const others = (await this.slugs()).filter((each) => !known.has(each));
        sources.push(...this.#sourcesOf(others, parts));
        rest = '';
        hungry = sources;
      } else hungry = sources.filter(({ before }) => before === frontier);
    }
  }

  /**
   * The automations with the latest runs, so many that no other one has any of the `wanted` newest runs if each has one.
   *
   * @returns their slugs, what none of those runs comes before, and what the runs of all others come before
   */
  async #latest(wanted: number, more = FEW_MORE): Promise<{ slugs: string[]; oldest: string; rest: string }> {
    const read = wanted + more;
    const found = await this.#redis.zrange(this.#keys.latestRuns, 0, `${read - 1}`, 'REV', 'WITHSCORES');
    const slugs = found.filter((_, index) => index % 2 === 0);
    const times = found.filter((_, index) => index % 2 === 1).map(Number);
    const lastMs = times[wanted - 1];
    if (lastMs === undefined) return { slugs, oldest: '', rest: '(' };
    const oldest = startOfMs(lastMs);
    const end = times.findIndex((ms) => ms < lastMs);
    if (end !== -1) return { slugs: slugs.slice(0, end), oldest, rest: `(${oldest}` };
    if (slugs.length < read) return { slugs, oldest, rest: '(' };
    if (more < MANY_MORE) return this.#latest(wanted, MANY_MORE);
    return { slugs, oldest, rest: `(${startOfMs(lastMs + 1)}` };
  }

  #sourcesOf(slugs: readonly string[], parts: readonly IndexPart[]): Source[] {
    return slugs.map((slug) => ({ keys: parts.map((part) => this.#keyOf(part, slug)), before: '+' }));
  }

  /**
   * The runs that come next in each automation's index. A run moves from the first part to the second one only, and they
   * are read in this order and as far back as each other, so that none is missed.
   */
  async #nextPages(sources: readonly Source[], count: number, oldest: string): Promise<string[][]> {
    const together: Promise<string[][]>[] = [];
    for (let start = 0; start < sources.length; start += READ_TOGETHER) {
      together.push(this.#readPages(sources.slice(start, start + READ_TOGETHER), count, oldest));
    }
    return (await Promise.all(together)).flat();
  }

  async #readPages(sources: readonly Source[], count: number, oldest: string): Promise<string[][]> {
    const keys = sources.flatMap((source) => source.keys);
    const ends = sources.flatMap((source) => source.keys.map(() => source.before));
    const sent = ends.every((end) => end === ends[0]) ? ends.slice(0, 1) : ends;
    const until = oldest === '' ? '-' : `[${oldest}`;
    const read = await this.#redis.eval(READ_PAGES, keys.length, ...keys, count, until, ...sent);
    const pages = read as string[][];
    let next = 0;
    return sources.map((source) => {
      const own = pages.slice(next, next + source.keys.length);
      next += source.keys.length;
      const full = own.filter((ids) => ids.length === count).map((ids) => ids.at(-1) ?? '');
      const end = full.sort().at(-1) ?? oldest;
      source.before = end === '' ? '' : `(${end}`;
      return own.flat().filter((id) => id >= end);
    });
  }

  #keyOf(part: IndexPart, slug: string): string {
    return part === 'open' ? this.#keys.openRuns(slug) : this.#keys.endedRuns(slug);
  }
}
