import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** What makes the time of the server that is asked next another one, perhaps: a new connection, or another node. */
const RECONNECTED = ['close', '+node', '-node'];

/** Has a key, although it does not use it: a cluster sends what has none to any of its nodes. */
const NOW = `local time = redis.call('TIME') return time[1] * 1000 + math.floor(time[2] / 1000)`;

/**
 * Redis' own time, so that Redis can judge by it what comes too late, whatever the clocks of the machines say. Redis tells
 * its time with other answers; it is asked for it when it has not done so on this connection.
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

  /** @param redisMs Redis' time in an answer that was received just now, in milliseconds since the epoch */
  told(redisMs: number): void {
    this.#told = { redisMs, receivedAt: performance.now() };
  }

  /**
   * Redis' time in `ms` milliseconds, in milliseconds since the epoch. It errs on the early side, by as long as the
   * latest answer with Redis' time took to arrive.
   */
  async in(ms: number): Promise<number> {
    const askedAt = performance.now();
    if (!this.#told) this.told(Number(await this.#redis.eval(NOW, 1, this.#keys.writeProbe)));
    const { redisMs, receivedAt } = this.#told ?? { redisMs: 0, receivedAt: askedAt };
    return Math.floor(redisMs + (askedAt - receivedAt) + ms);
  }
}
