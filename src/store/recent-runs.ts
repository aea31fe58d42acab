import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { QUEUE_NAME } from './queue.ts';

/** How a run ended, as far as a strip of colours shows it; `open` is one that has not. */
export type RecentEnd = 'succeeded' | 'failed' | 'cancelled' | 'open';

export interface RecentRun {
  id: string;
  end: RecentEnd;
}

/** The latest runs of some automations, in one command and without reading the runs. */
export class RecentRuns {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** @returns for each of the automations its latest runs, at most `count`, the newest last */
  async read(slugs: readonly string[], count: number): Promise<RecentRun[][]> {
    const { automations } = this.#keys;
    const reply = await this.#redis.eval(this.#script(), 1, automations, count, ...slugs);
    const found = reply as [id: string, end: RecentEnd][][];
    return found.map((runs) =>
      runs
        .map(([id, end]) => ({ id, end }))
        .sort((a, b) => (a.id < b.id ? -1 : 1))
        .slice(-count),
    );
  }

  /** Makes the names of the keys itself: all are in one slot. An ended run that is neither succeeded nor failed is cancelled. */
  #script(): string {
    const { openRuns, endedRuns, failedRuns, queuePrefix } = this.#keys;
    const slug = `' .. slug .. '`;
    return `
      local all = {}
      for i = 2, #ARGV do
        local slug, runs = ARGV[i], {}
        local ended = redis.call('ZRANGE', '${endedRuns(slug)}', '+', '-', 'BYLEX', 'REV', 'LIMIT', 0, ARGV[1])
        if #ended > 0 then
          local failed = redis.call('ZMSCORE', '${failedRuns(slug)}', unpack(ended))
          local succeeded = redis.call('ZMSCORE', '${queuePrefix}:${QUEUE_NAME}:completed', unpack(ended))
          for j, id in ipairs(ended) do
            runs[j] = {id, failed[j] and 'failed' or succeeded[j] and 'succeeded' or 'cancelled'}
          end
        end
        for _, id in ipairs(redis.call('ZRANGE', '${openRuns(slug)}', '+', '-', 'BYLEX', 'REV', 'LIMIT', 0, ARGV[1])) do
          runs[#runs + 1] = {id, 'open'}
        end
        all[i - 1] = runs
      end
      return all`;
  }
}
