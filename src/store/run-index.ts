import type { Result } from 'ioredis';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { Transaction } from './queue.ts';

/** A page of the index grows up to this many runs, so that a long search takes few round trips. */
const FIRST_PAGE = 50;
const LARGEST_PAGE = 1000;

/** Moves a run to those that have ended; one that has been moved already, or is kept no longer, stays where it is. */
const END = `
  if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then redis.call('ZADD', KEYS[2], 0, ARGV[1]) end
  if ARGV[3] then redis.call('HSET', KEYS[3], ARGV[2], ARGV[3]) end`;

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** {@link END}, sent by its hash. */
    orcEndRun(
      openRuns: string,
      endedRuns: string,
      lastSuccess: string,
      ...values: string[]
    ): Result<null, Context>;
  }
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
    redis.defineCommand('orcEndRun', { numberOfKeys: 3, lua: END });
  }

  /** Adds to what enqueues a run what makes it be found. */
  add(transaction: Transaction, slug: string, runId: string): unknown {
    return transaction.runCommand('zadd', [this.#keys.openRuns(slug), 0, runId]);
  }

  /** @param succeededAt when the run succeeded, if it did, in milliseconds since the epoch */
  async end(slug: string, runId: string, succeededAt?: number): Promise<void> {
    const { openRuns, endedRuns, lastSuccess } = this.#keys;
    const values = succeededAt === undefined ? [runId, slug] : [runId, slug, `${succeededAt}`];
    await this.#redis.orcEndRun(openRuns(slug), endedRuns(slug), lastSuccess, ...values);
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

  /** The ids of these automations' runs in pages, the newest run first over all of them; a run may come twice. */
  async *newestFirst(slugs: readonly string[], parts: readonly IndexPart[]): AsyncGenerator<string[]> {
    let sources = slugs.map((slug) => ({ keys: parts.map((part) => this.#keyOf(part, slug)), before: '+' }));
    let hungry = sources;
    let pending: string[] = [];
    for (let count = FIRST_PAGE; sources.length > 0; count = Math.min(count * 2, LARGEST_PAGE)) {
      for (const ids of await Promise.all(hungry.map((source) => this.#nextPage(source, count))))
        pending.push(...ids);
      sources = sources.filter(({ before }) => before !== '');
      // Nothing newer than this can still come from any source.
      const frontier =
        sources
          .map(({ before }) => before)
          .sort()
          .at(-1) ?? '';
      hungry = sources.filter(({ before }) => before === frontier);
      pending.sort((a, b) => (a < b ? 1 : -1));
      const end = pending.findIndex((id) => `(${id}` < frontier);
      const ready = end === -1 ? pending : pending.slice(0, end);
      pending = pending.slice(ready.length);
      if (ready.length > 0) yield ready;
    }
  }

  /**
   * The runs that come next in one automation's index. A run moves from the first part to the second one only, and they
   * are read in this order and as far back as each other, so that none is missed.
   */
  async #nextPage(source: { keys: string[]; before: string }, count: number): Promise<string[]> {
    const { keys, before } = source;
    const pages = await Promise.all(
      keys.map((key) => this.#redis.zrange(key, before, '-', 'BYLEX', 'REV', 'LIMIT', 0, count)),
    );
    const ends = pages.filter((ids) => ids.length === count).map((ids) => ids.at(-1) ?? '');
    const end = ends.sort().at(-1) ?? '';
    source.before = end === '' ? '' : `(${end}`;
    return pages.flat().filter((id) => id >= end);
  }

  #keyOf(part: IndexPart, slug: string): string {
    return part === 'open' ? this.#keys.openRuns(slug) : this.#keys.endedRuns(slug);
  }
}
