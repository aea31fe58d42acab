import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { RedisClock } from './redis-clock.ts';

/** How often a worker sends a heartbeat, in milliseconds. */
export const HEARTBEAT_MS = 2000;

/** A worker without a heartbeat for this long, in seconds, counts as dead. */
export const ALIVE_SECONDS = 7;

/** Uses Redis' clock only: the machines' clocks need not agree. */
const SCRIPTS = {
  /** Also forgets the slots of workers that are forgotten. */
  beat: `
    redis.call('ZADD', KEYS[1], redis.call('TIME')[1], ARGV[1])
    if ARGV[2] ~= '' then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
    if redis.call('HLEN', KEYS[2]) <= redis.call('ZCARD', KEYS[1]) then return end
    for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
      if not redis.call('ZSCORE', KEYS[1], id) then redis.call('HDEL', KEYS[2], id) end
    end`,
  probe: `
    local seconds, micros = unpack(redis.call('TIME'))
    redis.call('SET', KEYS[2], seconds)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', seconds - ${ALIVE_SECONDS})
    return {redis.call('ZCARD', KEYS[1]), seconds * 1000 + math.floor(micros / 1000)}`,
  alive: `
    local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. redis.call('TIME')[1] - ${ALIVE_SECONDS}, '+inf')
    local slots = 0
    for _, id in ipairs(ids) do
      local own = redis.call('HGET', KEYS[2], id)
      if not own then return { #ids } end
      slots = slots + own
    end
    return { #ids, slots }`,
} as const;

/** The live workers. */
export interface AliveWorkers {
  workersAlive: number;
  /** How many runs they can execute at the same time; absent if one of them does not report it. */
  slots?: number;
}

/** Tracks live workers by their heartbeats. */
export class WorkerRegistry {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #clock: RedisClock;

  constructor(redis: RedisClient, keys: Keys, clock: RedisClock) {
    this.#redis = redis;
    this.#keys = keys;
    this.#clock = clock;
  }

  /** @param slots how many runs the worker executes at the same time; those of earlier versions do not say */
  async beat(workerId: string, slots?: number): Promise<void> {
    const { workers, workerSlots } = this.#keys;
    await this.#redis.eval(SCRIPTS.beat, 2, workers, workerSlots, workerId, slots ?? '');
  }

  async leave(workerId: string): Promise<void> {
    await this.#redis.zrem(this.#keys.workers, workerId);
    await this.#redis.hdel(this.#keys.workerSlots, workerId);
  }

  /** Counts the live workers without a write. */
  async alive(): Promise<AliveWorkers> {
    const { workers, workerSlots } = this.#keys;
    const counts = (await this.#redis.eval(SCRIPTS.alive, 2, workers, workerSlots)) as number[];
    const [workersAlive = 0, slots] = counts;
    return { workersAlive, ...(slots !== undefined && { slots }) };
  }

  /**
   * Proves that Redis takes writes, and counts the workers alive.
   *
   * @throws when Redis is away, read-only, out of memory or unable to persist
   */
  async probe(): Promise<{ workersAlive: number }> {
    const { workers, writeProbe } = this.#keys;
    const reply = await this.#redis.eval(SCRIPTS.probe, 2, workers, writeProbe);
    const [workersAlive, redisMs] = reply as [number, number];
    this.#clock.told(redisMs);
    return { workersAlive };
  }
}
