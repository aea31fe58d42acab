import type { ErrorId } from '../core/errors.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

const HOUR_MS = 3_600_000;

/**
 * A hash's field with the number of an hour since the epoch, and the rejected requests in that hour and in the one before.
 * The version before leaves out fields that end like this one.
 */
const LATELY = 'lately:at';

/**
 * Adds the counts of each slug. Counts of unknown slugs go to one shared key: they leave no state per slug but take the same
 * work, so timing does not reveal which slugs exist.
 */
const ADD = `
  local now = tonumber(ARGV[2])
  for i, errors in ipairs(cjson.decode(ARGV[1])) do
    local target = redis.call('EXISTS', KEYS[2 * i - 1]) == 1 and KEYS[2 * i] or KEYS[#KEYS]
    local total = 0
    for error, rejected in pairs(errors) do
      redis.call('HINCRBY', target, error, rejected.count)
      redis.call('HSET', target, error .. ':at', rejected.lastAt)
      total = total + rejected.count
    end
    local hour, count, before = string.match(redis.call('HGET', target, '${LATELY}') or '', '^(%d+) (%d+) (%d+)$')
    if tonumber(hour) ~= now then count, before = 0, tonumber(hour) == now - 1 and count or 0 end
    redis.call('HSET', target, '${LATELY}', string.format('%d %d %d', now, count + total, before))
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
    await this.#redis.eval(
      ADD,
      keys.length + 1,
      ...keys,
      rejections(''),
      errors,
      Math.floor(Date.now() / HOUR_MS),
    );
  }

  /**
   * How many requests of each of these automations were rejected in the last hour, in the same order: exact for the clock hour
   * that began in it, estimated for what it has of the one before.
   */
  async countLately(slugs: readonly string[], now = Date.now()): Promise<number[]> {
    const fields = await Promise.all(
      slugs.map((slug) => this.#redis.hget(this.#keys.rejections(slug), LATELY)),
    );
    const hours = now / HOUR_MS;
    const share = 1 - (hours % 1);
    return fields.map((field) => {
      const [hour = 0, count = 0, before = 0] = (field ?? '').split(' ').map(Number);
      if (hour === Math.floor(hours)) return Math.round(count + before * share);
      return hour === Math.floor(hours) - 1 ? Math.round(count * share) : 0;
    });
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
