import type { TerminalRunStatus } from '../core/run.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { RunJobData } from './queue.ts';

/** How long an idempotency key stands for its run, in milliseconds, even if the run is removed earlier. */
export const IDEMPOTENCY_WINDOW_MS = 86_400_000;

/** Records the final status of a run if its key still exists. */
const NOTE_END = `if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'status', ARGV[1]) end`;

/** Remembers how a run that was accepted with an idempotency key ended, for as long as the key, or longer than the run. */
export class IdempotencyStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  async noteEnd({ automationId, idempotency }: RunJobData, status: TerminalRunStatus): Promise<void> {
    if (idempotency === undefined) return;
    await this.#redis.eval(NOTE_END, 1, this.#keys.idempotency(automationId, idempotency), status);
  }
}
