import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { rolldown } from 'rolldown';
import type { TestProject } from 'vitest/node';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { ROOT } from './repository.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    redisUrl: string;
  }
}

/** One real Redis for all test files, each of which works under a prefix of its own, and the scripted agent. */
export default async function setup(project: TestProject) {
  await bundleScriptedAgent();
  const report = (message: string) => void process.stderr.write(`${message}\n`);
  const server = await findRedisServer({ env: process.env, report });
  const dataDir = await mkdtemp(join(tmpdir(), 'orc-test-'));
  // Every process of the tests has it from here, so that none writes into the developer's own.
  process.env['XDG_STATE_HOME'] = join(dataDir, 'state');
  const redis = await startRedisServer({ server, dataDir, persistence: 'none' });
  project.provide('redisUrl', redis.url);

  return async () => {
    const leaked = await connectionsLeftOpen(redis.url);
    await redis.stop();
    await rm(dataDir, { recursive: true, force: true });
    if (leaked.length === 0) return;
    // vitest would not count a teardown that throws as a failure.
    process.exitCode = 1;
    report(`Tests left connections to Redis open:\n${leaked.join('\n')}`);
  };
}

/** In one file: Node would need half as long again to find and load the many small ones, at each of a hundred starts. */
async function bundleScriptedAgent(): Promise<void> {
  const input = `${ROOT}test/support/scripted-agent.ts`;
  await using bundle = await rolldown({ input, platform: 'node' });
  await bundle.write({ file: `${ROOT}.test/scripted-agent.js` });
}

/** How long connections may take to go once the tests have closed them, in milliseconds. */
const CLOSING_MS = 5000;

/** Asks again until Redis has seen all connections close that the tests have closed. */
async function connectionsLeftOpen(url: string): Promise<string[]> {
  const client = new Redis(url);
  const own = `id=${await client.client('ID')} `;
  const end = Date.now() + CLOSING_MS;
  let open: string[];
  do {
    const list = String(await client.client('LIST'));
    open = list.split('\n').filter((line) => line !== '' && !line.startsWith(own));
  } while (open.length > 0 && Date.now() < end);
  client.disconnect();
  return open;
}
