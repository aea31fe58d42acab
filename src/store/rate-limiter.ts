import type { RateLimit } from '../core/automation.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/**
 * Takes a place in the window, which begins with its first run, if there is one left (or, with ARGV[3] = 0, only
 * looks); returns whether there was, how many are left now, and the milliseconds until the window ends.
 */
const TAKE = `
  local count = tonumber(redis.call('GET', KEYS[1]) or '0')
  local limit = tonumber(ARGV[1])
  local allowed = count < limit and 1 or 0
  if allowed == 1 and ARGV[3] == '1' then
    count = redis.call('INCR', KEYS[1])
    if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  end
  local left = redis.call('PTTL', KEYS[1])
  if left < 0 then left = tonumber(ARGV[2]) end
  return {allowed, math.max(limit - count, 0), left}`;

export interface RateDecision {
  allowed: boolean;
  /** Runs that may still be accepted in this window. */
  remaining: number;
  /** Milliseconds until the window ends. */
  resetMs: number;
}

/** Rate limits of automations: fixed windows, counted in Redis and so shared by all API processes. */
export class RateLimiter {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** Whether a run would be allowed now, without counting it. */
  peek(automationId: string, rate: RateLimit): Promise<RateDecision> {
    return this.#decide(automationId, rate, '0');
  }

  /** Counts a run, if it is allowed. */
  take(automationId: string, rate: RateLimit): Promise<RateDecision> {
    return this.#decide(automationId, rate, '1');
  }

  async #decide(
    automationId: string,
    { limit, windowMs }: RateLimit,
    take: '0' | '1',
  ): Promise<RateDecision> {
    const key = this.#keys.rateWindow(automationId);
    const reply = await this.#redis.eval(TAKE, 1, key, limit, windowMs, take);
    const [allowed, remaining, resetMs] = reply as [number, number, number];
    return { allowed: allowed === 1, remaining, resetMs };
  }
}
