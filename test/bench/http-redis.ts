import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import {
  type RunningRedisServer,
  type StartRedisServerOptions,
  startRedisServer,
} from '../../src/local/redis-server.ts';
import { connect } from '../../src/store/connect.ts';
import { createStore, type Store } from '../../src/store/store.ts';
import type { BenchContext } from './part.ts';

const PREFIX = 'bench';
const POLL_MS = 20;

/** A Redis of the part's own whose keys are put back as they were between two turns. */
export class BenchRedis {
  readonly url: string;
  readonly pid: number;
  readonly store: Store;
  /** For `orc api`. */
  readonly env: NodeJS.ProcessEnv;
  #kept: { key: Buffer; value: Buffer }[] = [];

  static async start(
    context: BenchContext,
    persistence: StartRedisServerOptions['persistence'],
  ): Promise<BenchRedis> {
    const dataDir = await mkdtemp(join(context.directory, 'redis-'));
    context.defer(() => rm(dataDir, { recursive: true, force: true }));
    const server = await startRedisServer({
      server: context.redisServer,
      dataDir,
      persistence,
      listen: { port: 0 },
    });
    context.defer(() => server.stop());
    const redis = new BenchRedis(server);
    context.defer(() => redis.store.close());
    // Otherwise a rewrite of the append-only file would fall into some turns and not into others.
    await redis.store.redis.config('SET', 'auto-aof-rewrite-percentage', '0');
    return redis;
  }

  private constructor({ url, pid }: RunningRedisServer) {
    this.url = url;
    this.pid = pid;
    this.env = { REDIS_URL: url, REDIS_PREFIX: PREFIX };
    this.store = createStore(
      connect(url, 'patient', () => undefined),
      PREFIX,
      () => undefined,
    );
  }

  /** @returns the API key */
  async createAutomation(slug: string, changes: Partial<AutomationDefinition> = {}): Promise<string> {
    const action = { type: 'command', argv: ['true'], env: {}, passEnv: [] } as const;
    const created = await this.store.automations.create({
      ...{ slug, name: '', enabled: true, attempts: 1, onWorkerLoss: 'rerun' },
      action: { ...action, argv: [...action.argv], passEnv: [] },
      ...changes,
    });
    if (created.status !== 'created') throw new Error(`${slug} exists`);
    return created.apiKey;
  }

  /** What the hand-written server looks up. */
  async createHandWritten(slug: string, apiKey: string): Promise<void> {
    const keyHash = createHash('sha256').update(apiKey).digest('hex');
    await this.store.redis.hset(`hand-written:${slug}`, { keyHash, enabled: '1' });
  }

  /** Keeps every key as it is now, for {@link reset}. */
  async keep(): Promise<void> {
    const { redis } = this.store;
    this.#kept = [];
    for (const key of await redis.keysBuffer('*')) {
      const value = await redis.dumpBuffer(key);
      if (value) this.#kept.push({ key, value });
    }
  }

  /** Every key is as it was when it was kept, and the append-only file holds nothing else. */
  async reset(): Promise<void> {
    const { redis } = this.store;
    await redis.flushall('SYNC');
    for (const { key, value } of this.#kept) await redis.restore(key, 0, value, 'REPLACE');
    await redis.bgrewriteaof();
    while (/aof_rewrite_(in_progress|scheduled):1/.test(await redis.info('persistence')))
      await sleep(POLL_MS);
  }
}
