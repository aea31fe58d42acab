import { randomUUID } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';
import { beforeEach, describe, expect, test } from 'vitest';
import { RUN_STATUSES, type RunStatus } from '../../src/core/run.ts';
import type { TriggeredAutomation } from '../../src/store/automations.ts';
import { newRunId } from '../../src/store/run-id.ts';
import {
  acceptRun,
  acceptWithId,
  createTriggered,
  emptyStore,
  FAILED,
  HeldAttempts,
  SUCCEEDED,
  startConsumer,
  untilStatus,
} from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();
const { runs } = store;

beforeEach(() => emptyStore(store));

async function acceptMany(automation: TriggeredAutomation, count: number): Promise<string[]> {
  return Promise.all(Array.from({ length: count }, () => acceptRun(store, automation)));
}

async function listedIds(filter: Parameters<typeof runs.list>[0]): Promise<string[]> {
  return (await runs.list(filter)).map(({ id }) => id);
}

describe('accept', () => {
  test('stores a run that is queued', async () => {
    const automation = await createTriggered(store, 'accepting', { attempts: 3 });
    const before = Date.now();
    const id = newRunId();
    expect(id).toMatch(/^run_[0-9a-f-]{36}$/);
    await acceptWithId(store, automation, id, '{"text":"€"}');
    const run = await runs.get(id);
    expect(run).toEqual({
      id,
      automation: 'accepting',
      status: 'queued',
      acceptedAt: expect.any(Date),
      attempt: 0,
      maxAttempts: 3,
      requestId: 'test-request',
      payloadBytes: Buffer.byteLength('{"text":"€"}'),
    });
    expect(run?.acceptedAt.getTime()).toBeGreaterThanOrEqual(before);
    expect(run?.acceptedAt.getTime()).toBeLessThanOrEqual(Date.now());
  });

  test('stores a run in a Redis that has lost its scripts', async () => {
    const automation = await createTriggered(store, 'scripted');
    await acceptRun(store, automation);
    await store.redis.script('FLUSH', 'SYNC');
    await acceptRun(store, automation);
    await acceptRun(store, automation);
    expect(await store.runs.countQueued()).toBe(3);
  });

  test('gives every run an id of its own, in the order of acceptance', async () => {
    const ids = await acceptMany(await createTriggered(store, 'ordered'), 100);
    expect(new Set(ids).size).toBe(ids.length);
    expect([...ids].sort()).toEqual(ids);
  });
});

describe('get', () => {
  test.each(['', 'meta', 'wait', 'events', 'run_', `run_${randomUUID()}`])('knows no run %j', async (id) => {
    await acceptRun(store, await createTriggered(store, 'any'));
    expect(await runs.get(id)).toBeUndefined();
  });

  test('shows the statuses of a run in their order, however closely it is watched', async () => {
    const automation = await createTriggered(store, 'quick');
    startConsumer(store, async () => SUCCEEDED);
    const order: (RunStatus | undefined)[] = ['queued', 'running', 'succeeded'];
    for (let accepted = 0; accepted < 50; accepted += 1) {
      const runId = await acceptRun(store, automation);
      let last = 0;
      while (last < 2) {
        for (const run of await Promise.all([runs.get(runId), runs.get(runId), runs.get(runId)])) {
          const position = order.indexOf(run?.status);
          expect(position, run?.status).toBeGreaterThanOrEqual(last);
          last = position;
        }
      }
    }
  });
});

describe('list', () => {
  test('has the newest runs first, whatever became of them, and as many as asked for', async () => {
    const automation = await createTriggered(store, 'mixed');
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute, { concurrency: 2 });
    const [first = '', second = '', third = '', fourth = ''] = await acceptMany(automation, 4);
    await attempts.untilStarted(first, second);
    attempts.end(second);
    await attempts.untilStarted(first, second, third);
    expect(await runs.list({ limit: 10 })).toMatchObject([
      { id: fourth, status: 'queued' },
      { id: third, status: 'running' },
      { id: second, status: 'succeeded' },
      { id: first, status: 'running' },
    ]);
    expect(await listedIds({ limit: 2 })).toEqual([fourth, third]);
  });

  test('shows each run exactly as it is shown by itself', async () => {
    const automation = await createTriggered(store, 'alike');
    const runId = await acceptRun(store, automation);
    startConsumer(store, async () => SUCCEEDED);
    await untilStatus(store, runId, 'succeeded');
    expect(await runs.list({ limit: 1 })).toEqual([await runs.get(runId)]);
  });

  test('has only the runs of one automation when asked, however many others came after them', async () => {
    const old = await acceptRun(store, await createTriggered(store, 'rare'));
    await acceptMany(await createTriggered(store, 'frequent'), 450);
    expect(await listedIds({ automation: 'rare', limit: 1 })).toEqual([old]);
    expect(await listedIds({ automation: 'frequent', limit: 1000 })).toHaveLength(450);
    expect(await listedIds({ automation: 'unknown', limit: 1 })).toEqual([]);
  });

  test('has only the runs with one status when asked', async () => {
    const automation = await createTriggered(store, 'filtered', { attempts: 2 });
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute, { concurrency: 1 });
    const idOf = {} as Record<RunStatus, string>;
    for (const status of ['succeeded', 'failed', 'timed_out', 'cancelled'] as const) {
      idOf[status] = await acceptRun(store, automation);
      await attempts.untilStarted(...Object.values(idOf));
      attempts.end(idOf[status], { outcome: { status, reason: 'exit_code', message: '' }, mayRetry: false });
    }
    // The consumer is busy with the running one from then on, so that the other two stay as they are.
    for (const status of ['retrying', 'running', 'queued'] as const) {
      idOf[status] = await acceptRun(store, automation);
    }
    await attempts.untilStarted(...Object.values(idOf).slice(0, -2));
    attempts.end(idOf.retrying, { ...FAILED, mayRetry: true });
    await attempts.untilStarted(...Object.values(idOf).slice(0, -1));

    for (const status of RUN_STATUSES) {
      expect(await listedIds({ statuses: [status], limit: 10 })).toEqual([idOf[status]]);
    }
    expect(await listedIds({ statuses: ['failed'], automation: 'another', limit: 10 })).toEqual([]);
    for (const statuses of [
      ['succeeded', 'failed'],
      ['queued', 'failed'],
      ['cancelled', 'timed_out'],
    ] as const) {
      const expected = statuses.map((status) => idOf[status]).sort();
      expect((await listedIds({ statuses, limit: 10 })).sort()).toEqual(expected);
    }
    const failed = () => listedIds({ failed: true, limit: 10 });
    await expect.poll(failed).toEqual([idOf.timed_out, idOf.failed]);
  });

  test('has the runs accepted in a period, or the failed ones that ended in it, when asked', async () => {
    const automation = await createTriggered(store, 'timed');
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute);
    const acceptedAt = [3, 2, 1].map((hours) => Date.now() - hours * 3_600_000);
    const [oldest = '', middle = '', newest = ''] = acceptedAt.map((msecs) => `run_${uuidv7({ msecs })}`);
    for (const id of [oldest, middle, newest]) await acceptWithId(store, automation, id);
    await attempts.untilStarted(oldest, middle, newest);
    const [first = 0, second = 0, third = 0] = acceptedAt;
    const between = (since: number, until: number) =>
      listedIds({ since: new Date(since), until: new Date(until), limit: 10 });
    expect(await between(first, third)).toEqual([middle, oldest]);
    expect(await between(first + 1, third + 1)).toEqual([newest, middle]);
    expect(await between(second + 1, third)).toEqual([]);

    const beforeEnds = Date.now();
    for (const id of [newest, oldest]) {
      attempts.end(id, FAILED);
      await untilStatus(store, id, 'failed');
    }
    attempts.end(middle);
    const failed = (since: number, until?: number) =>
      listedIds({
        ...{ failed: true, automation: 'timed', since: new Date(since), limit: 10 },
        ...(until !== undefined && { until: new Date(until) }),
      });
    await expect.poll(() => failed(beforeEnds)).toEqual([oldest, newest]);
    expect(await failed(first, beforeEnds)).toEqual([]);
    const endedAt = (await runs.get(oldest))?.endedAt?.getTime() ?? 0;
    expect((await failed(beforeEnds, endedAt))[0]).not.toBe(oldest);
    expect(await listedIds({ failed: true, limit: 1 })).toEqual([oldest]);
    expect(await listedIds({ failed: true, automation: 'another', limit: 10 })).toEqual([]);
  });

  test('has every run exactly once while runs change their status', async () => {
    const accepted = await acceptMany(await createTriggered(store, 'moving'), 1000);
    startConsumer(store, async () => SUCCEEDED);
    let hasLast = false;
    while (!hasLast) {
      const listed = await runs.list({ limit: 2000 });
      expect(listed.map(({ id }) => id).reverse()).toEqual(accepted);
      hasLast = listed[0]?.status === 'succeeded';
    }
  });
});

test('the queued runs are those that wait, in a lane or between two attempts too', async () => {
  expect(await runs.countQueued()).toBe(0);
  const limited = await createTriggered(store, 'limited', { concurrency: 1 });
  const retried = await createTriggered(store, 'retried', { attempts: 2 });
  const attempts = new HeldAttempts();
  startConsumer(store, attempts.execute, { concurrency: 2 });
  const failing = await acceptRun(store, retried);
  const running = await acceptRun(store, limited);
  await attempts.untilStarted(failing, running);
  expect(await runs.countQueued()).toBe(0);

  await acceptRun(store, limited);
  const ending = await acceptRun(store, retried);
  const next = await acceptRun(store, retried);
  expect(await runs.countQueued()).toBe(3);
  attempts.end(failing, { ...FAILED, mayRetry: true });
  await attempts.untilStarted(failing, running, ending);
  expect(await runs.countQueued()).toBe(3);
  attempts.end(ending);
  await attempts.untilStarted(failing, running, ending, next);
  expect(await runs.countQueued()).toBe(2);
});
