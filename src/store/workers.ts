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
  /** A worker that drains is told apart from those that take runs. */
  beatDraining: `
    local now = redis.call('TIME')[1]
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('HDEL', KEYS[2], ARGV[1])
    redis.call('ZADD', KEYS[3], now, ARGV[1])
    redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - ${ALIVE_SECONDS})`,
  lacksGit: `
    local now = redis.call('TIME')[1]
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ${ALIVE_SECONDS})`,
  withoutGit: `
    return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. redis.call('TIME')[1] - ${ALIVE_SECONDS}, '+inf')`,
  probe: `
    local seconds, micros = unpack(redis.call('TIME'))
    redis.call('SET', KEYS[2], seconds)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', seconds - ${ALIVE_SECONDS})
    return {redis.call('ZCARD', KEYS[1]), seconds * 1000 + math.floor(micros / 1000)}`,
  alive: `
    local since = '(' .. redis.call('TIME')[1] - ${ALIVE_SECONDS}
    local ids = redis.call('ZRANGEBYSCORE', KEYS[1], since, '+inf')
    local draining = redis.call('ZRANGEBYSCORE', KEYS[3], since, '+inf')
    local slots = 0
    for _, id in ipairs(ids) do
      local own = redis.call('HGET', KEYS[2], id)
      if not own then return { #ids, draining } end
      slots = slots + own
    end
    return { #ids, draining, slots }`,
  list: `
    local since = '(' .. redis.call('TIME')[1] - ${ALIVE_SECONDS}
    local rows = {}
    for isDraining, key in pairs({[0] = KEYS[1], [1] = KEYS[3]}) do
      local found = redis.call('ZRANGEBYSCORE', key, since, '+inf', 'WITHSCORES')
      for i = 1, #found, 2 do
        rows[#rows + 1] = {found[i], found[i + 1], isDraining, redis.call('HGET', KEYS[2], found[i]) or ''}
      end
    end
    return rows`,
} as const;

/** The live workers. */
export interface AliveWorkers {
  /** Without those that drain. */
  workersAlive: number;
  /** Ids of the workers that finish the runs in their hands and take no more. */
  workersDraining: string[];
  /** How many runs they can execute at the same time; absent if one of them does not report it. */
  slots?: number;
}

/** One live worker. */
export interface LiveWorker {
  id: string;
  /** How many runs it executes at the same time; absent if it does not say, or drains. */
  slots?: number;
  isDraining: boolean;
  /** When it last gave a sign of life, by Redis' clock, to the second. */
  seenAt: Date;
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

  /** The sign of life of a worker that takes no more runs. */
  async beatDraining(workerId: string): Promise<void> {
    const { workers, workerSlots, drainingWorkers } = this.#keys;
    await this.#redis.eval(SCRIPTS.beatDraining, 3, workers, workerSlots, drainingWorkers, workerId);
  }

  /** Said with each sign of life of a worker that has no git. */
  async lacksGit(workerId: string): Promise<void> {
    await this.#redis.eval(SCRIPTS.lacksGit, 1, this.#keys.workersWithoutGit, workerId);
  }

  /** Ids of the workers alive that say that they have no git. */
  async withoutGit(): Promise<string[]> {
    return (await this.#redis.eval(SCRIPTS.withoutGit, 1, this.#keys.workersWithoutGit)) as string[];
  }

  async leave(workerId: string): Promise<void> {
    await this.#redis.zrem(this.#keys.workers, workerId);
    await this.#redis.zrem(this.#keys.workersWithoutGit, workerId);
    await this.#redis.zrem(this.#keys.drainingWorkers, workerId);
    await this.#redis.hdel(this.#keys.workerSlots, workerId);
  }

  /** Counts the live workers without a write. */
  async alive(): Promise<AliveWorkers> {
    const { workers, workerSlots, drainingWorkers } = this.#keys;
    const keys = [workers, workerSlots, drainingWorkers];
    const reply = await this.#redis.eval(SCRIPTS.alive, keys.length, ...keys);
    const [workersAlive, workersDraining, slots] = reply as [number, string[], number?];
    return { workersAlive, workersDraining, ...(slots !== undefined && { slots }) };
  }

  /** The live workers, by id. */
  async list(): Promise<LiveWorker[]> {
    const { workers, workerSlots, drainingWorkers } = this.#keys;
    const keys = [workers, workerSlots, drainingWorkers];
    const reply = await this.#redis.eval(SCRIPTS.list, keys.length, ...keys);
    const rows = reply as [id: string, seenAt: string, isDraining: number, slots: string][];
    return rows
      .map(([id, seenAt, isDraining, slots]) => ({
        id,
        ...(slots !== '' && { slots: Number(slots) }),
        isDraining: isDraining === 1,
        seenAt: new Date(Number(seenAt) * 1000),
      }))
      .sort((a, b) => (a.id < b.id ? -1 : 1));
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
