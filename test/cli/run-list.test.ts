import { expect, test } from 'vitest';
import { formatDuration } from '../../src/core/durations.ts';
import { shortRunId } from '../../src/core/run.ts';
import { runOrc } from '../support/orc.ts';
import { acceptRun, createTriggered, FAILED, startConsumer, untilStatus } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';
import { acceptRuns } from '../worker/workbench.ts';

const store = openTestStore();
const LONG_SLUG = `a${'-automation'.repeat(6)}`.slice(0, 64).replace(/-$/, '');

const list = (...args: string[]) => runOrc(['runs', 'list', ...args], { env: store.env });
const idsOf = (stdout: string) => JSON.parse(stdout).map(({ runId }: { runId: string }) => runId);

test('list --failed has the runs that failed, the latest end first, and other filters choose among them', async () => {
  const failing = await createTriggered(store, 'failing');
  const [waits = ''] = await acceptRuns(store, 'waits', { concurrency: 1 });
  const ids = [await acceptRun(store, failing), await acceptRun(store, failing)];
  startConsumer(store, async ({ automation }) =>
    automation === 'failing'
      ? FAILED
      : { outcome: { status: 'cancelled', reason: 'automation_deleted', message: '' }, mayRetry: false },
  );
  for (const id of ids) await untilStatus(store, id, 'failed');
  await untilStatus(store, waits, 'cancelled');
  const runs = await Promise.all(ids.map((id) => store.runs.get(id)));
  const latestFirst = runs.toSorted((a, b) => Number(b?.endedAt) - Number(a?.endedAt)).map((run) => run?.id);
  await expect
    .poll(async () => idsOf((await list('--failed', '--since', '1h', '--json')).stdout).length)
    .toBe(2);
  const [failed, ofOther, before, several] = await Promise.all([
    list('--failed', '--since', '1h', '--json'),
    list('--failed', '--automation', 'waits', '--json'),
    list('--failed', '--until', '1h', '--json'),
    list('--status', 'cancelled,failed', '--json'),
  ]);
  expect(new Set(idsOf(failed.stdout))).toEqual(new Set(latestFirst));
  expect([idsOf(ofOther.stdout), idsOf(before.stdout)]).toEqual([[], []]);
  expect(idsOf(several.stdout)).toEqual([...ids.toReversed(), waits]);
  expect(JSON.parse(failed.stdout)[0].id).toBe(idsOf(failed.stdout)[0]);
  expect((await list('--failed')).stdout).toMatch(/^RUN +AUTOMATION +STATUS +ENDED +TOOK +OUTCOME\n/);
});

test('TOOK is the time from the start of the first attempt to the end of the last one, pauses included', async () => {
  const other = openTestStore();
  const automation = await createTriggered(other, 'repeated', { attempts: 3 });
  startConsumer(other, async ({ attempt }) => (attempt < 3 ? { ...FAILED, mayRetry: true } : FAILED));
  const runId = await acceptRun(other, automation);
  await untilStatus(other, runId, 'failed');
  const run = (await other.runs.get(runId)) ?? expect.fail();
  const [first, , last] = await other.runs.attempts(run);
  const tookMs = Number(last?.endedAt) - Number(first?.startedAt);
  // Between the attempts are pauses of a second and of two.
  expect(Number(run.endedAt) - Number(run.startedAt)).toBeLessThan(tookMs);
  const { stdout } = await runOrc(['runs', 'list'], { env: other.env });
  expect(stdout).toContain(`  ${formatDuration(tookMs)}  `);
});

test('list has as many runs as are asked for', async () => {
  const many = openTestStore();
  const automation = await createTriggered(many, 'many');
  const ids = await Promise.all(Array.from({ length: 230 }, () => acceptRun(many, automation)));
  const listed = (...args: string[]) => runOrc(['runs', 'list', ...args], { env: many.env });
  expect(idsOf((await listed('--limit', '100000', '--json')).stdout)).toEqual(ids.toReversed());
  expect(idsOf((await listed('--limit', '120', '--json')).stdout)).toEqual(ids.toReversed().slice(0, 120));
  const { stdout } = await listed('--limit', '200');
  expect(stdout.trimEnd().split('\n')).toHaveLength(201);
});

test('on a terminal ids are short, times relative and no line is wider than it; a pipe gets all', async () => {
  const other = openTestStore();
  const [runId = ''] = await acceptRuns(other, LONG_SLUG);
  for (const columns of [100, 80]) {
    const shown = await runOrc(['runs', 'list'], {
      env: { ...other.env, NO_COLOR: '1' },
      isTTY: true,
      columns,
    });
    const lines = shown.stdout.trimEnd().split('\n');
    expect(lines[1]).toMatch(
      new RegExp(`^${shortRunId(runId)}  a-automation\\S*…?  queued +(now|\\d+ s ago)$`),
    );
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(columns);
  }
  const piped = await runOrc(['runs', 'list'], { env: other.env });
  const acceptedAt = (await other.runs.get(runId))?.acceptedAt.toISOString();
  expect(piped.stdout).toMatch(new RegExp(`^${runId}  ${LONG_SLUG}  queued  ${acceptedAt}$`, 'm'));
});
