import { AgentCosts } from './agent-costs.ts';
import { ArtifactStore } from './artifacts.ts';
import { AuditLog } from './audit.ts';
import { AutomationSurvey } from './automation-survey.ts';
import { AutomationStore } from './automations.ts';
import type { RedisClient } from './connect.ts';
import { EventOutbox } from './event-outbox.ts';
import { IdempotencyStore } from './idempotency.ts';
import { KeptBytes } from './kept-bytes.ts';
import { createKeys } from './keys.ts';
import { RunLanes } from './lanes.ts';
import { OperatorStore } from './operators.ts';
import { PayloadSchemas } from './payload-schemas.ts';
import { QueueOpener } from './queue.ts';
import { RecentRuns } from './recent-runs.ts';
import { RedisClock } from './redis-clock.ts';
import { RejectionStore } from './rejections.ts';
import { RunAcceptance } from './run-acceptance.ts';
import { RunCounts } from './run-counts.ts';
import { RunIndex } from './run-index.ts';
import { RunLogStore } from './run-log.ts';
import { RunResultStore } from './run-result.ts';
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
  const kept = new KeptBytes(redis, keys);
  const idempotency = new IdempotencyStore(redis, keys);
  const clock = new RedisClock(redis, keys);
  const automations = new AutomationStore(redis, keys, clock);
  const schemas = new PayloadSchemas(redis, keys);
  const acceptance = new RunAcceptance(redis, keys, { queue, automations, schemas, clock });
  return {
    redis,
    keys,
    automations,
    queue,
    runs: new RunQueue(redis, queue, { acceptance, lanes, idempotency, index }),
    index,
    recent: new RecentRuns(redis, keys),
    survey: new AutomationSurvey(redis, keys, index),
    counts: new RunCounts(redis, keys),
    retention: new RunRetention(redis, keys, { queue, index, kept }),
    idempotency,
    lanes,
    runLogs: new RunLogStore(redis, keys),
    events: new EventOutbox(redis, keys),
    results: new RunResultStore(redis, keys, queue),
    kept,
    agentCosts: new AgentCosts(redis, keys),
    artifacts: new ArtifactStore(redis, keys),
    rejections: new RejectionStore(redis, keys),
    audit: new AuditLog(redis, keys),
    operators: new OperatorStore(redis, keys),
    workers: new WorkerRegistry(redis, keys, clock),
    /** Ends the connection without waiting for Redis. Idempotent. */
    close: async () => {
      redis.disconnect();
    },
  };
}

export type Store = ReturnType<typeof createStore>;
