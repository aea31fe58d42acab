import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { buildApp } from '../../src/api/app.ts';
import { HealthMonitor } from '../../src/api/health-monitor.ts';
import type { Logger } from '../../src/logger.ts';
import { connect, type RedisClient } from '../../src/store/connect.ts';
import { createKeys } from '../../src/store/keys.ts';
import { createStore, type Store } from '../../src/store/store.ts';
import type { OpenApiDocument } from '../support/openapi.ts';

/** The same API in three states: as usual, with a queue that is always full, and with a Redis known to be away. */
export const SERVICES = ['usual', 'full', 'away'] as const;
export type Service = (typeof SERVICES)[number];

export interface TargetAutomation {
  slug: string;
  apiKey: string;
}

/** What is fuzzed. Plain data, so that it can come from another process. */
export interface Target {
  ports: Record<Service, number>;
  document: OpenApiDocument;
  automations: TargetAutomation[];
}

/** Small, so that bodies over the limit are cheap. */
const BODY_LIMIT_BYTES = 16_384;

const SETTINGS = {
  bodyLimitBytes: BODY_LIMIT_BYTES,
  acceptTimeoutMs: 2000,
  version: '1.2.3-fuzz',
  // Lets a request choose its address, so that failed authentications are throttled for some only.
  trustedProxies: ['127.0.0.1'],
};

const HEARTBEAT_MS = 2000;

/** Starts the production app, listening on the loopback interface, over automations of every kind. */
export async function startTarget(
  redisUrl: string,
  prefix: string,
  logger: Logger,
): Promise<{ target: Target; close(): Promise<void> }> {
  const redis = connect(redisUrl, 'fail-fast', () => undefined);
  if (redis.status !== 'ready') await once(redis, 'ready');
  const store = createStore(redis, prefix, (error) => logger.error({ err: error }, 'queue error'));
  const { workers } = store;
  await workers.beat('fuzz');
  const heartbeat = setInterval(() => void workers.beat('fuzz'), HEARTBEAT_MS);
  const health = new HealthMonitor(store, () => undefined);
  // A monitor that was never started takes Redis to be away.
  const away = new HealthMonitor(store, () => undefined);
  await health.start();

  const settings = { ...SETTINGS, maxQueuedRuns: 10_000_000 };
  const apps = {
    usual: buildApp({ store, health, logger, settings }),
    full: buildApp({ store, health, logger, settings: { ...settings, maxQueuedRuns: 0 } }),
    away: buildApp({ store, health: away, logger, settings }),
  };
  for (const app of Object.values(apps)) await app.listen({ host: '127.0.0.1', port: 0 });
  const portOf = (service: Service) => (apps[service].server.address() as AddressInfo).port;
  return {
    target: {
      ports: { usual: portOf('usual'), full: portOf('full'), away: portOf('away') },
      document: apps.usual.swagger() as unknown as OpenApiDocument,
      automations: await createAutomations(store),
    },
    close: async () => {
      clearInterval(heartbeat);
      health.close();
      for (const app of Object.values(apps)) {
        app.server.closeAllConnections();
        await app.close();
      }
      await store.close();
    },
  };
}

async function createAutomations(store: Store): Promise<TargetAutomation[]> {
  const kinds = {
    plain: {},
    'a-2nd-one': { attempts: 3 },
    disabled: { enabled: false },
    limited: { rate: { limit: 20, windowMs: 5000 } },
    'in-lane': { concurrency: 1 },
  };
  const automations: TargetAutomation[] = [];
  for (const [slug, kind] of Object.entries(kinds)) {
    const created = await store.automations.create({
      slug,
      name: '',
      enabled: true,
      action: { type: 'command', argv: ['true'], env: {}, passEnv: [] },
      attempts: 1,
      onWorkerLoss: 'rerun',
      ...kind,
    });
    if (created.status === 'exists') throw new Error(`${slug} exists`);
    automations.push({ slug, apiKey: created.apiKey });
  }
  return automations;
}

/** How many runs there are, whatever became of them. */
export async function countRuns(redis: RedisClient, prefix: string): Promise<number> {
  return (await redis.keys(`${createKeys(prefix).queuePrefix}:runs:run_*`)).length;
}

/** Deletes all runs and what is known of their idempotency keys, so that Redis does not fill up. */
export async function deleteRuns(redis: RedisClient, prefix: string): Promise<void> {
  const root = createKeys(prefix).queuePrefix;
  const patterns = ['runs:run_*', 'runs:wait', 'runs:delayed', 'runs:marker', 'runs:events'];
  for (const pattern of [...patterns, 'idempotency:*', 'lane:*', 'lane-running:*']) {
    const keys = await redis.keys(`${root}:${pattern}`);
    for (let start = 0; start < keys.length; start += 1000) {
      await redis.unlink(...keys.slice(start, start + 1000));
    }
  }
}
