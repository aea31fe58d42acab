import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { type RunningRedisServer, startRedisServer } from '../../src/local/redis-server.ts';

export interface PrivateRedis {
  /** The same before the first start and after every other one. */
  url: string;
  /** Where it keeps its AOF and its dumps. */
  dataDir: string;
  start(): Promise<void>;
  /** Ends it in order. */
  stop(): Promise<void>;
  /** Ends it as a crash would. */
  kill(): Promise<void>;
  /** Lets it accept connections and answer nothing. */
  freeze(): void;
  thaw(): void;
}

/**
 * A Redis that a test may break, persistent like production's. It is not running yet; it ends after the file's
 * tests. Call it at the top of the file: vitest takes hooks only there.
 */
export async function openPrivateRedis(): Promise<PrivateRedis> {
  const server = await findRedisServer({ env: process.env, report: () => undefined });
  const dataDir = await mkdtemp(join(tmpdir(), 'orc-redis-'));
  let running: RunningRedisServer | undefined;
  const signal = (name: NodeJS.Signals) => {
    if (running) process.kill(running.pid, name);
  };
  const stop = async () => {
    await running?.stop();
    running = undefined;
  };
  afterAll(async () => {
    signal('SIGCONT');
    await stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  return {
    url: join(dataDir, 'redis.sock'),
    dataDir,
    start: async () => {
      running = await startRedisServer({ server, dataDir, persistence: 'always' });
    },
    stop,
    kill: async () => {
      signal('SIGKILL');
      await running?.exited;
      running = undefined;
    },
    freeze: () => signal('SIGSTOP'),
    thaw: () => signal('SIGCONT'),
  };
}
