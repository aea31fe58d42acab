import type { ErrorId } from '../core/errors.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/**
 * Adds the counts of each slug. Counts of unknown slugs go to one shared key: they leave no state per slug but take the same
 * work, so timing does not reveal which slugs exist.
 */
const ADD = `
  for i, errors in ipairs(cjson.decode(ARGV[1])) do
    local target = redis.call('EXISTS', KEYS[2 * i - 1]) == 1 and KEYS[2 * i] or KEYS[#KEYS]
    for error, rejected in pairs(errors) do
      redis.call('HINCRBY', target, error, rejected.count)
      redis.call('HSET', target, error .. ':at', rejected.lastAt)
    end
  end`;

/** A count and the time of the last event, in milliseconds since the epoch. */
export interface RejectionCount {
  count: number;
  lastAt: number;
}

/** The rejected requests of one automation with the same error. */
export interface Rejection {
  error: ErrorId;
  count: number;
  lastAt: Date;
}

/** Counts the rejected requests of each automation since its creation. */
export class RejectionStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** Adds what was counted, in one command. @param counts by slug, existing or not, and identifier */
  async add(counts: ReadonlyMap<string, ReadonlyMap<ErrorId, RejectionCount>>): Promise<void> {
    const { automation, rejections } = this.#keys;
    const keys = [...counts.keys()].flatMap((slug) => [automation(slug), rejections(slug)]);
    const errors = JSON.stringify([...counts.values()].map((each) => Object.fromEntries(each)));
    await this.#redis.eval(ADD, keys.length + 1, ...keys, rejections(''), errors);
  }

  /** The latest first. */
  async read(slug: string): Promise<Rejection[]> {
    const fields = await this.#redis.hgetall(this.#keys.rejections(slug));
    return Object.entries(fields)
      .filter(([field]) => !field.endsWith(':at'))
      .map(([error, count]) => ({
        error: error as ErrorId,
        count: Number(count),
        lastAt: new Date(Number(fields[`${error}:at`])),
      }))
      .sort((a, b) => b.lastAt.getTime() - a.lastAt.getTime());
  }
}
