import type { Redis } from 'ioredis';
import { AutomationStore } from './automations.ts';
import { IdempotencyStore } from './idempotency.ts';
import { createKeys, type Keys } from './keys.ts';
import { RunLanes } from './lanes.ts';
import { QueueOpener } from './queue.ts';
import { RateLimiter } from './rate-limiter.ts';
import { RunLogStore } from './run-log.ts';
import { RunQueue } from './runs.ts';
import { WorkerRegistry } from './workers.ts';

/** Everything orc keeps in Redis, over one connection. */
export interface Store {
  redis: Redis;
  keys: Keys;
  automations: AutomationStore;
  runs: RunQueue;
  idempotency: IdempotencyStore;
  lanes: RunLanes;
  runLogs: RunLogStore;
  rateLimiter: RateLimiter;
  workers: WorkerRegistry;
  /** Ends the connection without waiting for Redis. Idempotent. */
  close(): Promise<void>;
}

/**
 * @param prefix REDIS_PREFIX
 * @param onError is told of failures that no caller awaits
 */
export function createStore(redis: Redis, prefix: string, onError: (error: Error) => void): Store {
  const keys = createKeys(prefix);
  const queue = new QueueOpener(redis, keys, onError);
  const lanes = new RunLanes(redis, keys, queue);
  const idempotency = new IdempotencyStore(redis, keys);
  return {
    redis,
    keys,
    automations: new AutomationStore(redis, keys),
    runs: new RunQueue(queue, lanes, idempotency),
    idempotency,
    lanes,
    runLogs: new RunLogStore(redis, keys),
    rateLimiter: new RateLimiter(redis, keys),
    workers: new WorkerRegistry(redis, keys),
    close: async () => {
      redis.disconnect();
    },
  };
}
