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

test('status of an installation without anything is short', async () => {
  const store = openTestStore();
  const { code, stdout } = await runOrc(['status'], { env: store.env });
  expect([code, stdout.split('\n').length]).toEqual([0, 5]);
});
