import { AutomationStore } from './automations.ts';
import type { RedisClient } from './connect.ts';
import { IdempotencyStore } from './idempotency.ts';
import { createKeys } from './keys.ts';
import { RunLanes } from './lanes.ts';
import { QueueOpener } from './queue.ts';
import { RedisClock } from './redis-clock.ts';
import { RejectionStore } from './rejections.ts';
import { RunAcceptance } from './run-acceptance.ts';
import { RunIndex } from './run-index.ts';
import { RunLogStore } from './run-log.ts';
import { RunRetention } from './run-retention.ts';
import { RunQueue } from './runs.ts';
import { WorkerRegistry } from './workers.ts';

/**
 * Everything orc keeps in Redis, over one connection.
 *
 * @param prefix REDIS_PREFIX
 * @param onError is called with failures that no caller awaits
 */
export function createStore(redis: RedisClient, prefix: string, onError: (error: Error) => void) {
  const keys = createKeys(prefix);
  const queue = new QueueOpener(redis, keys, onError);
  const lanes = new RunLanes(redis, keys, queue);
  const index = new RunIndex(redis, keys);
  const idempotency = new IdempotencyStore(redis, keys);
  const clock = new RedisClock(redis, keys);
  const automations = new AutomationStore(redis, keys, clock);
  const acceptance = new RunAcceptance(redis, keys, { queue, automations, clock });
  return {
    redis,
    keys,
    automations,
    queue,
    runs: new RunQueue(redis, queue, { acceptance, lanes, idempotency, index }),
    index,
    retention: new RunRetention(redis, keys, queue, index),
    idempotency,
    lanes,
    runLogs: new RunLogStore(redis, keys),
    rejections: new RejectionStore(redis, keys),
    workers: new WorkerRegistry(redis, keys, clock),
    /** Ends the connection without waiting for Redis. Idempotent. */
    close: async () => {
      redis.disconnect();
    },
  };
}

export type Store = ReturnType<typeof createStore>;
