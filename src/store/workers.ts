import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** A worker gives a sign of life this often, in milliseconds. */
export const HEARTBEAT_MS = 2000;

/** A worker without a sign of life for this long, in seconds, counts as dead. */
export const ALIVE_SECONDS = 7;

/** Redis' own clock is used throughout, so that the machines' clocks need not agree. */
const SCRIPTS = {
  beat: `redis.call('ZADD', KEYS[1], redis.call('TIME')[1], ARGV[1])`,
  probe: `
    local now = tonumber(redis.call('TIME')[1])
    redis.call('SET', KEYS[2], now)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ${ALIVE_SECONDS})
    return redis.call('ZCARD', KEYS[1])`,
  countAlive: `return redis.call('ZCOUNT', KEYS[1], '(' .. redis.call('TIME')[1] - ${ALIVE_SECONDS}, '+inf')`,
} as const;

/** Which workers are alive, as they say themselves. */
export class WorkerRegistry {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  async beat(workerId: string): Promise<void> {
    await this.#redis.eval(SCRIPTS.beat, 1, this.#keys.workers, workerId);
  }

  async leave(workerId: string): Promise<void> {
    await this.#redis.zrem(this.#keys.workers, workerId);
  }

  /** Counts the workers alive, and writes nothing. */
  async countAlive(): Promise<number> {
    return Number(await this.#redis.eval(SCRIPTS.countAlive, 1, this.#keys.workers));
  }

  /**
   * Proves that Redis takes writes, and counts the workers alive.
   *
   * @throws when Redis is away, read-only, out of memory or unable to persist
   */
  async probe(): Promise<{ workersAlive: number }> {
    const { workers, writeProbe } = this.#keys;
    const workersAlive = await this.#redis.eval(SCRIPTS.probe, 2, workers, writeProbe);
    return { workersAlive: Number(workersAlive) };
  }
}
