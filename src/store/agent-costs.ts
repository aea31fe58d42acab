import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** How long the sum of a day is kept, in seconds: a worker's last words of the day may come late. */
const KEPT_SECONDS = 2 * 86_400;

const ADD = `
  local sum = redis.call('INCRBYFLOAT', KEYS[1], ARGV[1])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  return sum`;

/** What the agents of automations cost, by day (UTC). */
export class AgentCosts {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /**
   * Adds to what an automation's runs cost today.
   *
   * @param amount in USD
   * @returns the sum of the day
   */
  async add(automationId: string, amount: number): Promise<number> {
    const day = new Date().toISOString().slice(0, 10);
    const key = this.#keys.agentCost(automationId, day);
    return Number(await this.#redis.eval(ADD, 1, key, amount.toFixed(6), KEPT_SECONDS));
  }
}
