import { execFile } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { mintApiKey } from '../src/core/api-key.ts';
import type { Store } from '../src/store/store.ts';
import { postTrigger } from './support/http.ts';
import { runOrc } from './support/orc.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from './support/orc-process.ts';
import { openPrivateRedis } from './support/private-redis.ts';
import { connectStore, createAutomation, script } from './support/store.ts';

const PAYLOAD = 'payload-canary-4711';
const BODY = `{"canary":"${PAYLOAD}"}`;

const redis = await openPrivateRedis();
const env = { REDIS_URL: redis.url, LOG_LEVEL: 'trace' };
let store: Store;
let api: OrcProcess & { url: string };
let worker: OrcProcess;
/** Every key that was valid in this file, and one that never was. */
let keys: string[];
/** The texts of all error answers. */
const errors: string[] = [];
/** The process list while a run is executed. */
let processes = '';

/** Redis' files, which hold bytes that are no text, too. */
async function redisFiles(): Promise<{ name: string; text: string }[]> {
  const entries = await readdir(redis.dataDir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return Promise.all(
    files.map(async ({ parentPath, name }) => ({
      name,
      text: await readFile(join(parentPath, name), 'latin1'),
    })),
  );
}

async function collectError(slug: string, key: string, payload: string): Promise<void> {
  const { status, headers, body } = await postTrigger(api.url, slug, key, payload);
  expect(status).toBeGreaterThanOrEqual(400);
  errors.push(JSON.stringify([...headers, body]));
}

beforeAll(async () => {
  await redis.start();
  store = connectStore(redis.url, 'patient', 'orc');
  api = await startApiProcess(env);
  worker = await startWorkerProcess(env);

  // It ends once the test has seen the process list.
  const source =
    'process.stdin.resume(); const t = setInterval(() => require("fs").existsSync(process.env.DONE) && clearInterval(t), 20)';
  const done = join(redis.dataDir, 'done');
  const { argv } = script(source) as { argv: string[] };
  const action = { type: 'command' as const, argv, env: { DONE: done }, passEnv: [] };
  const oldKey = await createAutomation(store, 'canary', { action });
  const rotated = await runOrc(['automations', 'rotate-key', 'canary', '--grace', '1m', '--quiet'], { env });
  const key = rotated.stdout.trim();
  const laneKey = await createAutomation(store, 'in-a-lane', { action: script(''), concurrency: 1 });
  expect((await postTrigger(api.url, 'in-a-lane', laneKey, BODY)).status).toBe(202);
  const wrongKey = mintApiKey();
  keys = [oldKey, key, laneKey, wrongKey];

  const { status, body } = await postTrigger(api.url, 'canary', key, BODY);
  expect(status).toBe(202);
  await vi.waitFor(
    async () => {
      processes = (await promisify(execFile)('ps', ['-A', '-ww', '-o', 'pid=,args='])).stdout;
      expect(processes).toContain(source);
    },
    { timeout: 20_000 },
  );
  await writeFile(done, '');
  await worker.record(({ msg, runId }) => msg === 'run ended' && runId === body['runId']);
  expect((await postTrigger(api.url, 'canary', oldKey, BODY)).status).toBe(202);

  await collectError('canary', wrongKey, BODY);
  await collectError('unknown', key, BODY);
  await collectError(key, key, BODY);
  await collectError(`${key}/%zz`, key, BODY);
  await collectError('canary', key, `${BODY}}`);
  await collectError('canary', key, `["${PAYLOAD}"]`);
  await collectError('canary', `${key}x`, BODY);
  await store.automations.setEnabled('canary', false);
  await collectError('canary', key, BODY);
});

afterAll(async () => {
  await store.close();
  expect(await Promise.all([api.stop(), worker.stop()])).toEqual([0, 0]);
});

test('a key and a payload are in no log line of any process', () => {
  const lines = [...api.lines, ...worker.lines];
  expect(api.lines.some((line) => line.includes('"statusCode":202'))).toBe(true);
  expect(worker.lines.some((line) => line.includes('run ended'))).toBe(true);
  expect(lines.filter((line) => [PAYLOAD, ...keys].some((canary) => line.includes(canary)))).toEqual([]);
});

test('a key and a payload are in no error answer', () => {
  expect(errors).toHaveLength(8);
  expect(errors.filter((text) => [PAYLOAD, ...keys].some((canary) => text.includes(canary)))).toEqual([]);
});

test('a key and a payload are in no command line while a run is executed', () => {
  expect(processes).toContain(`${api.child.pid} `);
  const lines = processes.split('\n');
  expect(lines.filter((line) => [PAYLOAD, ...keys].some((canary) => line.includes(canary)))).toEqual([]);
});

test("the signal for Node's debugger, by which any process of the user could read a secret, opens no port", async () => {
  for (const { child } of [api, worker]) child.kill('SIGUSR1');
  // What takes a process of Node as long to start as to open its port.
  expect((await runOrc(['status'], { env })).code).toBe(0);
  expect([...api.lines, ...worker.lines].filter((line) => line.includes('Debugger'))).toEqual([]);
  expect((await fetch(`${api.url}/orc/health`)).status).toBe(200);
});

test('a key is in no file of Redis: neither in the AOF, nor in a rewritten one, nor in a dump', async () => {
  const holdingKeys = async () =>
    (await redisFiles()).filter(({ text }) => keys.some((key) => text.includes(key))).map(({ name }) => name);
  // What a client sent is there in clear text, so that a key would be seen.
  expect((await redisFiles()).some(({ text }) => text.includes(PAYLOAD))).toBe(true);
  expect(await holdingKeys()).toEqual([]);

  await store.redis.bgrewriteaof();
  await expect
    .poll(() => store.redis.info('persistence'), { timeout: 20_000 })
    .toMatch(/aof_rewrite_in_progress:0[\s\S]*aof_rewrite_scheduled:0/);
  await store.redis.config('SET', 'rdbcompression', 'no');
  await store.redis.save();
  expect((await redisFiles()).map(({ name }) => name)).toContain('dump.rdb');
  expect(await holdingKeys()).toEqual([]);
});
