import { expect, onTestFinished, test } from 'vitest';
import { runOrc } from '../support/orc.ts';
import { FAILED, SUCCEEDED, startConsumer, untilStatus } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';
import { acceptRuns } from '../worker/workbench.ts';

const store = openTestStore();

const orc = (...args: string[]) => runOrc(['runs', ...args], { env: store.env });

/** Has runs of a new automation end with a status. */
async function ended(slug: string, status: 'succeeded' | 'failed', count: number): Promise<string[]> {
  const payloads = Array.from({ length: count }, (_, index) => JSON.stringify({ index }));
  const consumer = startConsumer(store, async () => (status === 'failed' ? FAILED : SUCCEEDED));
  const runIds = await acceptRuns(store, slug, {}, payloads);
  for (const runId of runIds) await untilStatus(store, runId, status);
  await consumer.close(0);
  return runIds;
}

test('cancel ends all waiting runs that match, and no other', async () => {
  const matching = await acceptRuns(store, 'many', {}, ['{}', '{}', '{}']);
  const [other = ''] = await acceptRuns(store, 'other');
  const asked = await orc('cancel', '--automation', 'many');
  expect([asked.code, asked.stdout]).toEqual([2, '']);
  expect(asked.stderr).toContain(
    '3 runs would be changed, and nothing was done. To go on without a question: --yes',
  );
  expect(await orc('cancel', '--automation', 'many', '--status', 'queued', '--yes')).toEqual({
    code: 0,
    stdout: '3 cancelled.\n',
    stderr: '',
  });
  for (const runId of matching) expect((await store.runs.get(runId))?.status).toBe('cancelled');
  expect((await store.runs.get(other))?.status).toBe('queued');
  expect((await orc('cancel', '--automation', 'many', '--yes')).stdout).toBe('There are no such runs.\n');
  expect((await orc('cancel', '--automation', 'mnay', '--yes')).stderr).toContain('Did you mean many?');
});

test('at a terminal it asks, and anything but yes does nothing', async () => {
  const matching = await acceptRuns(store, 'asked', {}, ['{}', '{}']);
  const answer = (stdin: string) =>
    runOrc(['runs', 'cancel', '--automation', 'asked'], { env: store.env, isTTY: true, stdin });
  for (const text of ['\n', 'n\n', 'yesterday\n']) {
    const { code, stdout, stderr } = await answer(text);
    expect([code, stdout]).toEqual([1, expect.stringContaining('Cancel 2 runs? [y/N] ')]);
    expect(stderr).toContain('Nothing was done.');
  }
  for (const runId of matching) expect((await store.runs.get(runId))?.status).toBe('queued');
  expect(await answer('y\n')).toMatchObject({ code: 0, stdout: expect.stringContaining('2 cancelled.') });
  for (const runId of matching) expect((await store.runs.get(runId))?.status).toBe('cancelled');
});

test('retry repeats all failed runs in the order of acceptance, with their payloads', async () => {
  const failed = await ended('failing', 'failed', 3);
  await ended('fine', 'succeeded', 1);
  const { code, stdout } = await orc(
    'retry',
    '--automation',
    'failing',
    '--failed',
    '--since',
    '1h',
    '--yes',
    '--json',
  );
  expect(code).toBe(0);
  const result = JSON.parse(stdout);
  expect(result).toMatchObject({ matched: 3, failed: [] });
  expect(result.runs.map(({ runId }: { runId: string }) => runId)).toEqual(failed);
  for (const [index, { newRunId }] of result.runs.entries()) {
    expect(await store.runs.get(newRunId)).toMatchObject({ status: 'queued', retryOf: failed[index] });
  }
});

test('it goes on after a failure, and says which runs failed', async () => {
  const [gone = ''] = await ended('deleted', 'failed', 1);
  const [kept = ''] = await ended('kept', 'failed', 1);
  await store.automations.delete('deleted');
  onTestFinished(() => store.runs.cancel(kept).then(() => undefined));
  const { code, stdout, stderr } = await orc('retry', '--status', 'failed', '--since', '1h', '--yes');
  expect(code).toBe(1);
  expect(stdout).toMatch(/^\d+ repeated, 1 failed\.$/m);
  expect(stderr).toContain('1 of ');
  expect(stderr).toContain(`${gone}: The automation deleted is deleted; its runs cannot be repeated.`);
});

test.each([
  ['ended runs to cancel', ['cancel', '--failed', '--yes'], 'have ended cannot be cancelled'],
  ['all runs to repeat', ['retry', '--automation', 'many', '--yes'], 'Say which runs to repeat'],
  ['open runs to repeat', ['retry', '--status', 'queued', '--yes'], 'Say which runs to repeat'],
  ['one run and a filter', ['cancel', 'run_01', '--automation', 'many'], 'not both'],
  ['to wait for many', ['retry', '--failed', '--wait', '--yes'], '--wait is for one run'],
])('%s is a usage error', async (_, args, message) => {
  const { code, stdout, stderr } = await orc(...args);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain(message);
});
