import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { afterAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { findRedisServer } from '../src/local/find-redis-server.ts';
import { executables } from '../src/local/programs.ts';
import { postTrigger, untilHealthy } from './support/http.ts';
import { startApiProcess, startTimedWorker } from './support/orc-process.ts';
import { codeBlock } from './support/pages.ts';
import { openPrivateRedis } from './support/private-redis.ts';
import { readProjectFile } from './support/repository.ts';
import { connectStore, createAutomation } from './support/store.ts';

const run = promisify(execFile);
const deploy = readProjectFile('docs/deploy.md');

/** So that what the restored Redis takes for executing is executed again at once. */
const TIMING = { lockMs: 3000, stalledCheckMs: 500, renewMs: 500, leaseMs: 2000 };
const TIMEOUT_MS = 90_000;
const SOON = { timeout: 20_000, interval: 50 };

const server = await findRedisServer({ env: process.env, report: () => undefined });
/** With redis-cli, where it was installed with the server. */
const env = { ...process.env, ...server.env, PATH: `${dirname(server.command)}:${process.env['PATH']}` };
const hasClient = (await executables([join(dirname(server.command), 'redis-cli')])).length > 0;
const redis = await openPrivateRedis();
const folder = await mkdtemp(join(tmpdir(), 'orc-backup-'));
const backup = join(folder, 'backup');
const executions = join(folder, 'executions');
const mayEnd = join(folder, 'may-end');

afterAll(() => rm(folder, { recursive: true, force: true }));

beforeEach(async () => {
  await redis.stop();
  for (const place of [redis.dataDir, folder]) await empty(place);
  await redis.start();
});

async function empty(place: string): Promise<void> {
  for (const name of await readdir(place)) await rm(join(place, name), { recursive: true, force: true });
}

interface Kind {
  name: string;
  /** Of the running Redis. */
  take(): Promise<void>;
  /** Into the empty folder of the Redis that was stopped. */
  restore(): Promise<void>;
}

const KINDS: Kind[] = [
  {
    name: 'a copy of the AOF',
    take: async () => {
      const client = new Redis(redis.url);
      await client.config('SET', 'auto-aof-rewrite-percentage', 0);
      await mkdir(backup);
      const names = (await readdir(redis.dataDir)).filter((name) => name.startsWith('appendonly'));
      for (const name of names) await cp(join(redis.dataDir, name), join(backup, name), { recursive: true });
      await client.config('SET', 'auto-aof-rewrite-percentage', 100);
      client.disconnect();
    },
    restore: () => cp(backup, redis.dataDir, { recursive: true }),
  },
];

if (hasClient) {
  KINDS.push({
    name: 'an RDB file, by the commands of docs/deploy.md',
    take: async () => {
      const command = codeBlock(deploy, ({ code }) => code.startsWith('redis-cli --rdb'));
      await run('sh', ['-c', command.replace('redis-cli', `redis-cli -s ${redis.url}`)], {
        cwd: folder,
        env,
      });
      await cp(join(folder, 'backup.rdb'), backup);
    },
    restore: async () => {
      const script = codeBlock(deploy, ({ code }) => code.includes('cat > dump.rdb'));
      const child = spawn('sh', ['-c', script], {
        cwd: redis.dataDir,
        // As in the container of Compose, whose own Redis has a password.
        env: { ...env, REDISCLI_AUTH: 'another' },
        stdio: ['pipe', 'ignore', 'inherit'],
      });
      child.stdin.end(await readFile(backup));
      expect(await once(child, 'exit')).toEqual([0, null]);
    },
  });
} else {
  console.warn('SKIPPED: there is no redis-cli beside redis-server, by which an RDB file is restored.');
}

test.each(KINDS)(
  '$name is restored under a running API and worker',
  { timeout: TIMEOUT_MS },
  async ({ take, restore }) => {
    const api = await startApiProcess({ REDIS_URL: redis.url });
    const worker = await startTimedWorker({ REDIS_URL: redis.url, WORKER_CONCURRENCY: '1' }, TIMING);
    const store = connectStore(redis.url, 'patient', 'orc');
    onTestFinished(async () => {
      await writeFile(mayEnd, '');
      await Promise.all([api.stop(), worker.stop(), store.close()]);
    });
    const shell = (script: string) => ({
      action: { type: 'command' as const, argv: ['sh', '-c', script], env: {}, passEnv: [] },
    });
    const note = `echo "$ORC_RUN_ID" >> ${executions}`;
    const key = await createAutomation(store, 'quick', shell(note));
    const slowKey = await createAutomation(
      store,
      'slow',
      shell(`${note}; until [ -e ${mayEnd} ]; do sleep 0.05; done`),
    );
    const replaceRedis = async () => {
      await redis.kill();
      await empty(redis.dataDir);
      await restore();
      await redis.start();
    };
    const statusOf = async (runId: string) => (await store.runs.get(runId))?.status;
    const timesExecuted = async (runId: string) => {
      const lines = await readFile(executions, 'utf8').catch(() => '');
      return lines.split('\n').filter((line) => line === runId).length;
    };
    const trigger = async (apiKey: string, slug = 'quick', idempotencyKey?: string) => {
      const response = await fetch(`${api.url}/orc/api/automation-triggers/${slug}`, {
        method: 'POST',
        headers: { 'x-api-key': apiKey, ...(idempotencyKey && { 'idempotency-key': idempotencyKey }) },
      });
      const body = (await response.json()) as { runId: string; status: string };
      return { ...body, statusCode: response.status, replayed: response.headers.get('idempotency-replayed') };
    };

    // One executes, and three wait, when the backup is taken.
    const slow = await trigger(slowKey, 'slow');
    await expect.poll(() => timesExecuted(slow.runId), SOON).toBe(1);
    const waiting = [];
    for (const each of ['a', 'b', 'c']) waiting.push(await trigger(key, 'quick', each));
    await take();

    // What comes after it is in no backup.
    const late = [await trigger(key, 'quick', 'late'), await trigger(key)];
    expect(late.map(({ statusCode }) => statusCode)).toEqual([202, 202]);
    const laterKey = await createAutomation(store, 'later', shell(note));
    const rotated = await store.automations.rotateKey('quick', 0);
    const newKey = rotated.status === 'rotated' ? rotated.apiKey : '';
    expect((await postTrigger(api.url, 'quick', key)).status).toBe(401);

    await replaceRedis();
    await untilHealthy(api.url);
    await writeFile(mayEnd, '');
    for (const { runId } of [...waiting, slow])
      await expect.poll(() => statusOf(runId), SOON).toBe('succeeded');
    for (const { runId } of waiting) expect(await timesExecuted(runId)).toBe(1);
    expect([1, 2]).toContain(await timesExecuted(slow.runId));
    for (const { runId } of late) {
      expect(await store.runs.get(runId)).toBeUndefined();
      expect(await timesExecuted(runId)).toBe(0);
    }
    // Keys and idempotency keys are as they were.
    expect((await trigger(laterKey, 'later')).statusCode).toBe(401);
    expect((await trigger(newKey)).statusCode).toBe(401);
    const [first] = waiting;
    expect(await trigger(key, 'quick', 'a')).toMatchObject({
      status: 'succeeded',
      replayed: 'true',
      runId: first?.runId,
    });
    const again = await trigger(key, 'quick', 'late');
    expect(again).toMatchObject({ replayed: null });
    expect(again.runId).not.toBe(late[0]?.runId);
    await expect.poll(() => statusOf(again.runId), SOON).toBe('succeeded');

    // Runs that have ended since the backup have not ended in it.
    await replaceRedis();
    await untilHealthy(api.url);
    for (const { runId } of waiting) {
      await expect
        .poll(async () => (await store.runs.get(runId))?.outcome, SOON)
        .toMatchObject({ status: 'succeeded' });
      expect(await timesExecuted(runId)).toBe(2);
    }
    expect(await store.runs.get(again.runId)).toBeUndefined();
    expect([api.child.exitCode, worker.child.exitCode]).toEqual([null, null]);
  },
);

test('a run that the restored Redis does not know is ended by the worker that executes it', {
  timeout: TIMEOUT_MS,
}, async () => {
  const api = await startApiProcess({ REDIS_URL: redis.url });
  const worker = await startTimedWorker({ REDIS_URL: redis.url }, TIMING);
  const store = connectStore(redis.url, 'patient', 'orc');
  onTestFinished(async () => {
    await Promise.all([api.stop(), worker.stop(), store.close()]);
  });
  const argv = ['sh', '-c', `echo "$ORC_RUN_ID" >> ${executions}; exec sleep 600`];
  const key = await createAutomation(store, 'long', {
    action: { type: 'command', argv, env: {}, passEnv: [] },
  });
  const [kind] = KINDS;
  await kind?.take();
  const { body } = await postTrigger(api.url, 'long', key);
  await worker.record(({ msg, runId }) => msg === 'run started' && runId === body['runId']);
  await redis.kill();
  await empty(redis.dataDir);
  await kind?.restore();
  await redis.start();
  await worker.record(({ msg, runId }) => msg === 'run interrupted' && runId === body['runId']);
  expect(await store.runs.get(String(body['runId']))).toBeUndefined();
});
