import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Run } from '../src/core/run.ts';
import { postTrigger } from './support/http.ts';
import { runOrc } from './support/orc.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from './support/orc-process.ts';
import { createAutomation, openTestStore, script } from './support/store.ts';

const store = openTestStore();
let apis: (OrcProcess & { url: string })[];
let workers: OrcProcess[];

beforeAll(async () => {
  apis = await Promise.all([startApiProcess(store.env), startApiProcess(store.env)]);
  workers = await Promise.all([startWorkerProcess(store.env), startWorkerProcess(store.env)]);
});

afterAll(async () => {
  const codes = await Promise.all([...apis, ...workers].map((each) => each.stop()));
  expect(codes).toEqual([0, 0, 0, 0]);
});

const origin = (index: number) => apis[index % apis.length]?.url ?? '';

async function ended(runId: string): Promise<Run> {
  await expect
    .poll(async () => (await store.runs.get(runId))?.endedAt, { timeout: 20_000 })
    .toBeInstanceOf(Date);
  return (await store.runs.get(runId)) as Run;
}

async function printed(runId: string): Promise<string> {
  const { entries } = await store.runLogs.read(runId);
  return Buffer.concat(
    entries.filter(({ source }) => source === 'stdout').map(({ data }) => data),
  ).toString();
}

/** Everything that a parser and serialiser in between would change. */
const DELICATE_PAYLOAD = [
  '{"big":123456789012345678901234567890,"z":1,"a":1e400,"__proto__":{"polluted":true},"constructor":null,',
  '"astral":"😀𝒳\u2028","escaped":"\\u0041\\ud83d\\ude00\\/","dup":1,"dup":2,  "minus":-0.0,',
  `"filler":"${'é'.repeat(100_000)}"}\n`,
].join('');

test('every run that two API processes accept is executed exactly once by one of two workers', async () => {
  const key = await createAutomation(store, 'count', {
    action: script('process.stdout.write(process.env.ORC_RUN_ID)'),
  });
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, index) => postTrigger(origin(index), 'count', key, `{"n":${index}}`)),
  );
  expect(answers.map(({ status }) => status)).toEqual(Array(40).fill(202));
  const runIds = answers.map(({ body }) => String(body['runId']));
  expect(new Set(runIds).size).toBe(40);

  const runs = await Promise.all(runIds.map(ended));
  expect(runs.map(({ status }) => status)).toEqual(Array(40).fill('succeeded'));
  expect(new Set(runs.map(({ worker }) => worker)).size).toBe(2);
  expect(await Promise.all(runIds.map(printed))).toEqual(runIds);
});

test('a delicate payload of 200 KB reaches a command with the SHA-256 that the client computed', async () => {
  const key = await createAutomation(store, 'hash', {
    action: script(
      'const h = require("crypto").createHash("sha256"); process.stdin.on("data", (d) => h.update(d)).on("end", () => process.stdout.write(h.digest("hex")))',
    ),
  });
  const { status, body } = await postTrigger(origin(0), 'hash', key, DELICATE_PAYLOAD);
  expect(status).toBe(202);
  const runId = String(body['runId']);
  expect((await ended(runId)).status).toBe('succeeded');
  expect(await printed(runId)).toBe(createHash('sha256').update(DELICATE_PAYLOAD).digest('hex'));
});

test('a delicate payload of 200 KB reaches a URL with the SHA-256 that the client computed', async () => {
  const received: string[] = [];
  const receiver = createServer((request, response) => {
    const hash = createHash('sha256');
    request.on('data', (data) => hash.update(data));
    request.on('end', () => {
      received.push(hash.digest('hex'));
      response.end();
    });
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  const { port } = receiver.address() as AddressInfo;
  const key = await createAutomation(store, 'forward', {
    action: { type: 'http', url: `http://127.0.0.1:${port}/` },
  });
  const { body } = await postTrigger(origin(1), 'forward', key, DELICATE_PAYLOAD);
  expect((await ended(String(body['runId']))).status).toBe('succeeded');
  receiver.close();
  receiver.closeAllConnections();
  expect(received).toEqual([createHash('sha256').update(DELICATE_PAYLOAD).digest('hex')]);
});

test('no request is refused while a key is rotated with a grace period under a steady stream', async () => {
  const oldKey = await createAutomation(store, 'rotating');
  const statuses: number[] = [];
  let key = oldKey;
  let isOver = false;
  const streams = [0, 1, 2, 3].map(async (index) => {
    while (!isOver) statuses.push((await postTrigger(origin(index), 'rotating', key)).status);
  });

  const rotated = await runOrc(['automations', 'rotate-key', 'rotating', '--grace', '1m', '--quiet'], {
    env: store.env,
  });
  const withOldKey = statuses.length;
  await expect.poll(() => statuses.length).toBeGreaterThan(withOldKey + 20);
  key = rotated.stdout.trim();
  const withNewKey = statuses.length;
  await expect.poll(() => statuses.length).toBeGreaterThan(withNewKey + 20);
  isOver = true;
  await Promise.all(streams);

  expect(key).not.toBe(oldKey);
  expect(new Set(statuses)).toEqual(new Set([202]));
  expect((await postTrigger(origin(0), 'rotating', oldKey)).status).toBe(202);
});
