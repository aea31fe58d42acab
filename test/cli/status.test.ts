import { writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { runOrc, startWorkerProcess } from '../support/orc-process.ts';
import { openTestStore } from '../support/store.ts';
import { acceptRuns, eventually, openFolder, waitFor } from '../worker/workbench.ts';

const folder = openFolder();

test('status says on one screen what waits, what executes and when each automation last succeeded', async () => {
  const store = openTestStore();
  const status = (...args: string[]) => runOrc(['status', ...args], { env: store.env });
  const [queued = ''] = await acceptRuns(store, 'report', { action: waitFor(folder('go')) });
  const before = await status();
  expect(before.code).toBe(0);
  expect(before.stdout).toMatch(/^workers {3}none is alive; start one: orc worker$/m);
  expect(before.stdout).toMatch(new RegExp(`^queued {4}1, the oldest for .*: ${queued} of report$`, 'm'));
  expect(before.stdout).toMatch(/^report +1 +never$/m);
  const listed = await runOrc(['runs', 'list'], { env: store.env });
  expect(listed.stderr).toMatch(/^NO WORKER IS ALIVE · 1 queued, the oldest for .* · 0 running\n$/);

  const worker = await startWorkerProcess(store.env);
  await eventually(async () => (await store.runs.get(queued))?.status).toBe('running');
  const during = await status();
  expect(during.stdout).toMatch(/^workers {3}1 alive$/m);
  expect(during.stdout).toMatch(new RegExp(`^${queued} +report +\\S.* +1 +\\S+$`, 'm'));
  writeFileSync(folder('go'), '');
  await eventually(async () => (await store.index.lastSuccesses()).has('report')).toBe(true);
  const after = JSON.parse((await status('--json')).stdout);
  expect(after).toMatchObject({
    workersAlive: 1,
    queued: 0,
    retrying: 0,
    running: [],
    automations: [{ slug: 'report', open: 0, lastSuccess: expect.any(String) }],
  });
  await worker.stop();
});

test('where the same runs hold all slots of all workers for long, status, doctor and metrics say so', async () => {
  const store = openTestStore();
  const env = { ...store.env, WORKER_CONCURRENCY: '1', OPS_PORT: '0' };
  const worker = await startWorkerProcess(env);
  const opsUrl = (await worker.record(({ msg }) => msg === 'ops listens'))['url'];
  const heldSeconds = async () => {
    const metrics = await (await fetch(`${opsUrl}/metrics`)).text();
    return Number(/^orc_slots_held_seconds (\S+)$/m.exec(metrics)?.[1]);
  };
  expect(await heldSeconds()).toBe(0);
  const [holder = ''] = await acceptRuns(store, 'hook', { action: waitFor(folder('held')) });
  await eventually(async () => (await store.runs.get(holder))?.status).toBe('running');
  const slotsLine = async () => /^slots .*$/m.exec((await runOrc(['status'], { env })).stdout)?.[0];
  expect(await slotsLine()).toBeUndefined();

  // What two minutes would do.
  await store.redis.hset(`${store.keys.queuePrefix}:runs:${holder}`, 'processedOn', Date.now() - 120_000);
  const cure = `orc runs cancel ${holder}, or start another worker: orc worker`;
  expect(await slotsLine()).toMatch(
    new RegExp(`^slots +all 1 have been held for 2 min.*: 1 by hook; longest by ${holder}; ${cure}$`),
  );
  expect(await heldSeconds()).toBeGreaterThan(100);
  const { stdout } = await runOrc(['doctor', '--json'], { env });
  expect(JSON.parse(stdout)).toContainEqual({
    check: 'slots',
    state: 'warning',
    message: expect.stringMatching(/^all 1 have been held for 2 min.*; no other run starts$/),
    cure,
  });
  const { stderr } = await runOrc(['runs', 'list'], { env });
  expect(stderr).toContain('ALL SLOTS ARE HELD: orc status');
  writeFileSync(folder('held'), '');
  await eventually(heldSeconds).toBe(0);
  expect(await slotsLine()).toBeUndefined();
  await worker.stop();
});

test('status of an installation without anything is short', async () => {
  const store = openTestStore();
  const { code, stdout } = await runOrc(['status'], { env: store.env });
  expect([code, stdout.split('\n').length]).toEqual([0, 5]);
});
