import { writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { AttemptResult } from '../../src/core/run.ts';
import { runOrc } from '../support/orc.ts';
import { startWorkerProcess } from '../support/orc-process.ts';
import { acceptRun, createTriggered, FAILED, startConsumer, untilStatus } from '../support/runs.ts';
import { command, createAutomation, openTestStore } from '../support/store.ts';
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
  expect(before.stdout).toMatch(/^busiest +in the last hour: report \(accepted 1\)$/m);
  expect(before.stdout).toMatch(/^report +enabled +0 +1 +queued (now|\d+ s ago) +never$/m);
  const listed = await runOrc(['runs', 'list'], { env: store.env });
  expect(listed.stderr).toMatch(/^NO WORKER IS ALIVE · 1 queued, the oldest for .* · 0 running\n$/);

  const worker = await startWorkerProcess(store.env);
  await eventually(async () => (await store.runs.get(queued))?.status).toBe('running');
  const during = await status();
  expect(during.stdout).toMatch(/^workers {3}1 alive$/m);
  expect(during.stdout).toMatch(new RegExp(`^${queued} +report +\\S.* +1 +\\S+$`, 'm'));
  expect(during.stdout).toMatch(/^kept {6}0 bytes of at most 1\.0 GiB$/m);
  writeFileSync(folder('go'), '');
  await eventually(async () => (await store.index.lastSuccesses()).has('report')).toBe(true);
  const after = JSON.parse((await status('--json')).stdout);
  expect(after).toMatchObject({
    workersAlive: 1,
    queued: 0,
    retrying: 0,
    running: [],
    kept: { bytes: expect.any(Number), limitBytes: 1_073_741_824, automations: [{ slug: 'report' }] },
    automations: [
      {
        ...{
          slug: 'report',
          state: 'enabled',
          open: 0,
          failedLately: 0,
          acceptedLately: 1,
          rejectedLately: 0,
        },
        lastRun: { runId: queued, id: queued, status: 'succeeded' },
        lastSuccess: expect.any(String),
      },
    ],
  });
  await worker.stop();
});

test('status, runs list and doctor say which automations are paused, and how many runs wait for that', async () => {
  const store = openTestStore();
  await acceptRuns(store, 'halted', {}, []);
  await store.automations.setPaused('halted', true);
  await runOrc(['trigger', 'halted'], { env: store.env });
  const { stdout } = await runOrc(['status'], { env: store.env });
  expect(stdout).toMatch(/^queued +1$/m);
  expect(stdout).toMatch(/^paused +1 waiting, held by pause of halted: orc automations resume halted$/m);
  expect((await runOrc(['runs', 'list'], { env: store.env })).stderr).toContain('1 queued (1 held by pause)');
  const doctor = await runOrc(['doctor'], { env: store.env });
  expect(doctor.stdout).toMatch(
    /queue +1 waiting, held by pause of halted\n.*paused +1 waiting, held by pause of halted\n.*orc automations resume halted/,
  );
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
  expect([code, stdout.split('\n').length]).toEqual([0, 6]);
});

test('status shows first what fails, then what waits for its own limit, and who asks for most', async () => {
  const store = openTestStore();
  const failing = await createTriggered(store, 'failing');
  const runId = await acceptRun(store, failing);
  const consumer = startConsumer(store, async () => FAILED);
  await untilStatus(store, runId, 'failed');
  await expect.poll(() => store.index.countFailed(['failing'], new Date(0))).toEqual([1]);
  await consumer.close(1000);
  const [first, second] = await acceptRuns(store, 'limited', { concurrency: 1 }, ['{}', '{}', '{}']);
  await createTriggered(store, 'quiet');
  await createAutomation(store, 'off', { enabled: false });
  await store.rejections.add(
    new Map([['quiet', new Map([['rate_limited', { count: 7, lastAt: Date.now() }]])]]),
  );
  const { stdout } = await runOrc(['status'], { env: store.env });
  const lines = stdout.trimEnd().split('\n');
  expect(lines.slice(-5).map((line) => line.split(/ {2,}/))).toEqual([
    ['AUTOMATION', 'STATE', 'FAILED/H', 'OPEN', 'LAST RUN', 'LAST SUCCESS'],
    ['failing', 'enabled', '1', '0', expect.stringMatching(/^failed (now|\d+ s ago)$/), 'never'],
    ['limited', 'held', '0', '3', expect.stringMatching(/^queued (now|\d+ s ago)$/), 'never'],
    ['quiet', 'enabled', '0', '0', 'none', 'never'],
    ['off', 'disabled', '0', '0', 'none', 'never'],
  ]);
  expect(stdout).toMatch(
    /^busiest +in the last hour: quiet \(accepted 0 and rejected 7\), limited \(accepted 3\), failing \(accepted 1\)$/m,
  );
  // The first one has the place, and waits for a worker only.
  expect(stdout).toMatch(new RegExp(`^queued .*: ${first} of limited$`, 'm'));
  await store.redis.lrem(`${store.keys.queuePrefix}:runs:wait`, 0, first ?? '');
  const held = `held by --concurrency 1 behind ${first}`;
  // Without a worker, no place would help.
  expect((await runOrc(['status'], { env: store.env })).stdout).not.toContain(held);
  await store.workers.beat('worker-1');
  expect((await runOrc(['status'], { env: store.env })).stdout).toContain(`${second} of limited, ${held}`);
  const shown = await runOrc(['runs', 'show', second ?? ''], { env: store.env });
  expect(shown.stdout).toMatch(
    new RegExp(`^waits +${held}; the cure: orc runs cancel ${first}, or orc `, 'm'),
  );
  const findings = JSON.parse((await runOrc(['doctor', '--json'], { env: store.env })).stdout);
  expect(findings).toContainEqual({
    check: 'kept runs',
    state: 'ok',
    message:
      '1 ended runs are kept, 3 have not ended; most by limited (0 kept, 3 not ended), failing (1 kept, 0 not ended)',
  });
});

test('no table is wider than a terminal of 100 columns', async () => {
  const store = openTestStore();
  const slug = 'a'.repeat(64);
  const env = { ...store.env, NO_COLOR: '1' };
  const [runId = ''] = await acceptRuns(store, slug, {
    name: 'n'.repeat(200),
    attempts: 2,
    action: command('x'.repeat(300)),
  });
  const message = 'm'.repeat(300);
  const failed: AttemptResult = {
    outcome: { status: 'failed', reason: 'exit_code', message },
    mayRetry: true,
  };
  const consumer = startConsumer(store, async () => failed, { workerId: 'w'.repeat(60) });
  await untilStatus(store, runId, 'failed');
  await consumer.close(1000);
  for (const args of [
    ['status'],
    ['runs', 'list'],
    ['runs', 'list', '--failed'],
    ['automations', 'list'],
    ['runs', 'show', runId],
  ]) {
    const { stdout } = await runOrc(args, { env, isTTY: true, columns: 100 });
    const table = stdout.split('\n').filter((line) => line.includes('  ') && /^(a|[A-Z]|0|1|2)/.test(line));
    expect([args, table.length > 1, Math.max(...table.map((line) => line.length)) <= 100]).toEqual([
      args,
      true,
      true,
    ]);
  }
});
