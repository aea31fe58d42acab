import type { Run } from '../core/run.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { QueueOpener } from './queue.ts';

/** Stores the result if the worker still holds the run. ARGV: the lock's token, the result, milliseconds to keep it. */
const WRITE = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  return 1`;

/** The results of runs: JSON texts of objects, each kept with its run. */
export class RunResultStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #queue: QueueOpener;

  constructor(redis: RedisClient, keys: Keys, queue: QueueOpener) {
    this.#redis = redis;
    this.#keys = keys;
    this.#queue = queue;
  }

  /**
   * Stores the result of a run that is about to end. Over the connection by which it ends, so that whoever sees its end finds
   * its result. A worker that has lost the run changes nothing.
   *
   * @param token of the worker's lock
   * @param text JSON text of an object, without secrets
   * @param ttlMs how long it is kept if its run is removed by others than the retention
   */
  async write(runId: string, token: string, text: string, ttlMs: number): Promise<void> {
    const queue = await this.#queue.open();
    const keys = [`${queue.toKey(runId)}:lock`, this.#keys.result(runId)];
    await this.#redis.eval(WRITE, keys.length, ...keys, token, text, Math.ceil(ttlMs));
  }

  /**
   * The result of an ended run as JSON text, byte for byte; undefined if it has none. An attempt whose worker died may have
   * left one that is not the run's, so the outcome decides.
   */
  async read({ id, outcome }: Pick<Run, 'id' | 'outcome'>): Promise<string | undefined> {
    if (outcome?.resultBytes === undefined) return undefined;
    return (await this.#redis.get(this.#keys.result(id))) ?? undefined;
  }
}
