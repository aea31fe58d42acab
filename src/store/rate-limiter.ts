import type { Redis } from 'ioredis';
import type { RateLimit } from '../core/automation.ts';
import type { Keys } from './keys.ts';

/** Takes a place in the window, which begins with its first run; or says how long the full window still lasts. */
const TAKE = `
  if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then return redis.call('PTTL', KEYS[1]) end
  if redis.call('INCR', KEYS[1]) == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return -1`;

/** Gives a place back, unless its window is over. */
const GIVE_BACK = `if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('DECR', KEYS[1]) end`;

export type RateDecision = { allowed: true } | { allowed: false; retryAfterMs: number };

/** Rate limits of automations: fixed windows, counted in Redis and so shared by all API processes. */
export class RateLimiter {
  readonly #redis: Redis;
  readonly #keys: Keys;

  constructor(redis: Redis, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** Whether a run would be allowed now, without counting it. */
  async peek(automationId: string, { limit }: RateLimit): Promise<RateDecision> {
    const key = this.#keys.rateWindow(automationId);
    const [count, retryAfterMs] = await Promise.all([this.#redis.get(key), this.#redis.pttl(key)]);
    return Number(count) >= limit && retryAfterMs > 0 ? { allowed: false, retryAfterMs } : { allowed: true };
  }

  /** Counts a run, if it is allowed. */
  async take(automationId: string, { limit, windowMs }: RateLimit): Promise<RateDecision> {
    const left = Number(
      await this.#redis.eval(TAKE, 1, this.#keys.rateWindow(automationId), limit, windowMs),
    );
    return left < 0 ? { allowed: true } : { allowed: false, retryAfterMs: left };
  }

  /** Takes back the count of a run that was not accepted after all. */
  async giveBack(automationId: string): Promise<void> {
    await this.#redis.eval(GIVE_BACK, 1, this.#keys.rateWindow(automationId));
  }
}
