import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { postTrigger } from './support/http.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from './support/orc-process.ts';
import { ROOT } from './support/repository.ts';
import { untilStatus } from './support/runs.ts';
import { command, createAutomation, openTestStore, script } from './support/store.ts';

const RUNS = 5;

const store = openTestStore();
const folders: string[] = [];
/** This version with another format of its jobs. */
let newer: string;
/** This version, which looks sooner whether a newer worker has taken what it left. */
let eager: string;
/** This version with the index of the version before, which knew the runs of each automation, and not all runs. */
let older: string;

beforeAll(async () => {
  newer = await changedVersion(
    ['format: 1,', 'format: 2,'],
    ['(job.data.format ?? 1) > 1', '(job.data.format ?? 1) > 2'],
  );
  eager = await changedVersion(['NEWER_FORMAT_PAUSE_MS = 2e3;', 'NEWER_FORMAT_PAUSE_MS = 100;']);
  older = await changedVersion(
    ["keys.openRuns()}', 0, runId", "keys.latestRuns}', 'GT', now, slug"],
    ["if redis.call('ZREM', allOpenRuns, runId) == 1 then", 'if false then'],
  );
});

afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

/** Copies what is built, with changes to its code, each in one place. @returns the executable */
async function changedVersion(...changes: [text: string, replacement: string][]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'orc-version-'));
  folders.push(folder);
  await cp(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true });
  await cp(join(ROOT, 'package.json'), join(folder, 'package.json'));
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const names = await readdir(join(folder, 'dist'), { recursive: true });
  const files = names.filter((name) => name.endsWith('.js')).map((name) => join(folder, 'dist', name));
  for (const [text, replacement] of changes) {
    const sources = await Promise.all(
      files.map(async (file) => ({ file, code: await readFile(file, 'utf8') })),
    );
    const found = sources.filter(({ code }) => code.includes(text));
    expect([text, found.length]).toEqual([text, 1]);
    for (const { file, code } of found) await writeFile(file, code.replace(text, replacement));
  }
  return join(folder, 'dist/orc.js');
}

async function trigger({ url }: { url: string }, slug: string, key: string): Promise<string> {
  const { status, body } = await postTrigger(url, slug, key);
  expect(status).toBe(202);
  return String(body['runId']);
}

function hasEnded(worker: OrcProcess, id: string): Promise<unknown> {
  return worker.record(({ msg, runId }) => msg === 'run ended' && runId === id);
}

test('a worker leaves the runs of a newer version to a newer worker, and executes its own meanwhile', {
  timeout: 90_000,
}, async () => {
  const key = await createAutomation(store, 'upgraded', { action: script(''), onWorkerLoss: 'fail' });
  const laneKey = await createAutomation(store, 'in-a-lane', { action: script(''), concurrency: 1 });
  const oldApi = await startApiProcess(store.env);
  const oldWorker = await startWorkerProcess(store.env, eager);
  const newApi = await startApiProcess(store.env, newer);

  const left: string[] = [];
  for (let run = 0; run < RUNS; run++) left.push(await trigger(newApi, 'upgraded', key));
  for (let run = 0; run < 2; run++) left.push(await trigger(newApi, 'in-a-lane', laneKey));
  await oldWorker.line('newer version');
  // What comes after them does not wait for them, whichever version's API accepted it.
  for (let run = 0; run < RUNS; run++) await hasEnded(oldWorker, await trigger(oldApi, 'upgraded', key));
  for (const runId of left) {
    await expect.poll(() => store.runs.get(runId)).toMatchObject({ status: 'queued', attempt: 0 });
  }

  const newWorker = await startWorkerProcess(store.env, newer);
  for (const runId of left) {
    await hasEnded(newWorker, runId);
    await untilStatus(store, runId, 'succeeded');
    const run = await store.runs.get(runId);
    expect(run).toMatchObject({ attempt: 1, outcome: { exitCode: 0 } });
    expect(run && (await store.runs.attempts(run))).toHaveLength(1);
  }
  const lines = oldWorker.lines.filter((line) => left.some((runId) => line.includes(runId)));
  expect(lines).toEqual([]);
  expect(oldWorker.lines.filter((line) => line.includes('newer version'))).toHaveLength(1);

  expect(await Promise.all([oldApi.stop(), oldWorker.stop()])).toEqual([0, 0]);
  await hasEnded(newWorker, await trigger(newApi, 'upgraded', key));
  expect(await Promise.all([newApi.stop(), newWorker.stop()])).toEqual([0, 0]);
});

test('a newer worker executes the runs of the version before, and those of versions without a format', async () => {
  const key = await createAutomation(store, 'older', { action: script('') });
  const oldApi = await startApiProcess(store.env);
  const runId = await trigger(oldApi, 'older', key);
  const formatless = await trigger(oldApi, 'older', key);
  const job = `${store.keys.queuePrefix}:runs:${formatless}`;
  const { format, ...data } = JSON.parse((await store.redis.hget(job, 'data')) ?? '');
  expect(format).toBe(1);
  await store.redis.hset(job, 'data', JSON.stringify(data));
  const newWorker = await startWorkerProcess(store.env, newer);
  await hasEnded(newWorker, runId);
  await hasEnded(newWorker, formatless);
  expect(await Promise.all([oldApi.stop(), newWorker.stop()])).toEqual([0, 0]);
});

test('every run is listed, whichever version accepts and ends it, from the first one on', {
  timeout: 90_000,
}, async () => {
  const slugs = ['listed-a', 'listed-b', 'listed-c'];
  const keys = await Promise.all(
    slugs.map((slug) => createAutomation(store, slug, { action: command('true') })),
  );
  const accepted: string[] = [];
  /** Triggers all automations at once, so many times. */
  const load = async (api: { url: string }, times: number) => {
    for (let time = 0; time < times; time += 1) {
      const runIds = slugs.map((slug, index) => trigger(api, slug, keys[index] ?? ''));
      accepted.push(...(await Promise.all(runIds)));
    }
  };
  const listed = async () => (await store.runs.list({ limit: 10_000 })).map(({ id }) => id);
  const expectAllListed = async () => {
    const before = [...accepted];
    expect(await listed()).toEqual(expect.arrayContaining(before));
  };

  const oldApi = await startApiProcess(store.env, older);
  const oldWorker = await startWorkerProcess(store.env, older);
  await load(oldApi, 10);
  const newApi = await startApiProcess(store.env);
  const newWorker = await startWorkerProcess(store.env);
  let isLoaded = true;
  const loads = [oldApi, newApi].map(async (api) => {
    while (isLoaded) await load(api, 1);
  });
  while (accepted.length < 200) await expectAllListed();
  isLoaded = false;
  await Promise.all(loads);
  expect(await Promise.all([oldApi.stop(), oldWorker.stop()])).toEqual([0, 0]);
  await expectAllListed();
  for (const runId of accepted) await untilStatus(store, runId, 'succeeded');
  const ended = await store.runs.list({ limit: 10_000, statuses: ['succeeded'] });
  const own = ended.filter(({ automation }) => slugs.includes(automation));
  expect(own.map(({ id }) => id)).toEqual(accepted.toSorted().toReversed());
  expect(await Promise.all([newApi.stop(), newWorker.stop()])).toEqual([0, 0]);
});
