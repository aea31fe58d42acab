import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** Events after which another server, with another clock, may answer. */
const RECONNECTED = ['close', '+node', '-node'];

/** Is called with a key that it does not use: a cluster sends keyless commands to any node. */
const NOW = `local time = redis.call('TIME') return time[1] * 1000 + math.floor(time[2] / 1000)`;

/**
 * Redis' own time, by which Redis judges deadlines independently of the machines' clocks. It comes with other replies, or is
 * read once per connection.
 */
export class RedisClock {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  #told: { redisMs: number; receivedAt: number } | undefined;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
    for (const event of RECONNECTED) {
      redis.on(event, () => {
        this.#told = undefined;
      });
    }
  }

  /** @param redisMs Redis' time in a reply received just now, in milliseconds since the epoch */
  told(redisMs: number): void {
    this.#told = { redisMs, receivedAt: performance.now() };
  }

  /**
   * Redis' time `ms` milliseconds from now, in milliseconds since the epoch. It is early by as long as the latest reply with
   * Redis' time took to arrive.
   */
  async in(ms: number): Promise<number> {
    const askedAt = performance.now();
    if (!this.#told) this.told(Number(await this.#redis.eval(NOW, 1, this.#keys.writeProbe)));
    const { redisMs, receivedAt } = this.#told ?? { redisMs: 0, receivedAt: askedAt };
    return Math.floor(redisMs + (askedAt - receivedAt) + ms);
  }
}
