import { beforeEach, describe, expect, test } from 'vitest';
import { CANCELLED_BY_OPERATOR } from '../../src/core/run.ts';
import { newRunId } from '../../src/store/run-id.ts';
import {
  acceptLimits,
  acceptRun,
  createTriggered,
  emptyStore,
  FAILED,
  HeldAttempts,
  holdAttempts,
  SUCCEEDED,
  startConsumer,
  takeableRuns,
  untilStatus,
} from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();
const { runs } = store;

beforeEach(() => emptyStore(store));

describe('cancelling a run', () => {
  test('that is queued ends it at once, and it never starts', async () => {
    const automation = await createTriggered(store, 'waiting');
    const cancelled = await acceptRun(store, automation);
    const next = await acceptRun(store, automation);
    expect(await runs.cancel(cancelled)).toBe('cancelled');
    expect(await runs.get(cancelled)).toMatchObject({
      status: 'cancelled',
      attempt: 0,
      endedAt: expect.any(Date),
      outcome: CANCELLED_BY_OPERATOR,
    });
    expect(await takeableRuns(store)).toEqual([next]);
    expect(await runs.countQueued()).toBe(1);

    const attempts = holdAttempts(store);
    await attempts.untilStarted(next);
    attempts.end(next);
    await untilStatus(store, next, 'succeeded');
    expect(attempts.startedIds).toEqual([next]);
    expect(await runs.attempts((await runs.get(cancelled)) ?? expect.fail())).toEqual([]);
  });

  test('that waits in a lane lets the one after it move up', async () => {
    const automation = await createTriggered(store, 'lane', { concurrency: 1 });
    const [first, second, third] = [
      await acceptRun(store, automation),
      await acceptRun(store, automation),
      await acceptRun(store, automation),
    ];
    // The first one has the lane's only place already, the others wait for it.
    expect(await runs.cancel(second)).toBe('cancelled');
    expect(await runs.cancel(first)).toBe('cancelled');
    expect(await takeableRuns(store)).toEqual([third]);
  });

  test('that is between two attempts ends it without another one', async () => {
    const automation = await createTriggered(store, 'between', { attempts: 3 });
    const attempts = holdAttempts(store);
    const runId = await acceptRun(store, automation);
    await attempts.untilStarted(runId);
    attempts.end(runId, { ...FAILED, mayRetry: true });
    await untilStatus(store, runId, 'retrying');
    expect(await runs.cancel(runId)).toBe('cancelled');
    const run = (await runs.get(runId)) ?? expect.fail();
    expect(run).toMatchObject({ status: 'cancelled', attempt: 1, outcome: CANCELLED_BY_OPERATOR });
    expect(await runs.attempts(run)).toMatchObject([{ attempt: 1, outcome: FAILED.outcome }]);
  });

  test('that executes interrupts its attempt, whichever worker makes it', async () => {
    const automation = await createTriggered(store, 'executing', { attempts: 3 });
    const attempts = holdAttempts(store);
    const runId = await acceptRun(store, automation);
    await attempts.untilStarted(runId);
    expect(await runs.cancel(runId)).toBe('requested');
    await untilStatus(store, runId, 'cancelled');
    expect((await runs.get(runId))?.outcome).toEqual(CANCELLED_BY_OPERATOR);
    expect(attempts.startedIds).toEqual([runId]);
  });

  test('that failed while its end was asked for makes the next attempt end before it begins', async () => {
    const automation = await createTriggered(store, 'late', { attempts: 2 });
    const seen: unknown[] = [];
    startConsumer(store, async ({ id, attempt }, signal) => {
      seen.push([attempt, signal.aborted]);
      if (signal.aborted) return { outcome: CANCELLED_BY_OPERATOR, mayRetry: false };
      expect(await runs.cancel(id)).toBe('requested');
      return { ...FAILED, mayRetry: true };
    });
    const runId = await acceptRun(store, automation);
    await untilStatus(store, runId, 'cancelled');
    expect(seen).toEqual([
      [1, false],
      [2, true],
    ]);
  });

  test.each(['succeeded', 'failed', 'timed_out', 'cancelled'] as const)(
    'that has %s changes nothing',
    async (status) => {
      const outcome = { status, reason: 'exit_code', message: 'as it was' } as const;
      startConsumer(store, async () => ({ outcome, mayRetry: false }));
      const runId = await acceptRun(store, await createTriggered(store, 'ended'));
      await untilStatus(store, runId, status);
      const before = await runs.get(runId);
      expect(await runs.cancel(runId)).toBe('ended');
      expect(await runs.get(runId)).toEqual(before);
    },
  );

  test('that does not exist, or is no run, finds nothing', async () => {
    expect(await runs.cancel(newRunId())).toBe('not_found');
    expect(await runs.cancel('meta')).toBe('not_found');
  });
});

describe('retrying a run', () => {
  test('makes a new one with its payload that names it', async () => {
    const automation = await createTriggered(store, 'again');
    const payloads: string[] = [];
    startConsumer(store, async ({ payload }) => {
      payloads.push(payload.toString());
      return payloads.length === 1 ? FAILED : SUCCEEDED;
    });
    const payload = '{"n":12345678901234567890}';
    const runId = await acceptRun(store, automation, payload);
    await untilStatus(store, runId, 'failed');
    const retried = await runs.retry(runId, automation, acceptLimits());
    if (retried.status !== 'accepted') expect.fail(retried.status);
    expect(retried.runId).not.toBe(runId);
    await untilStatus(store, retried.runId, 'succeeded');
    expect(await runs.get(retried.runId)).toMatchObject({ retryOf: runId, automation: 'again' });
    expect((await runs.get(runId))?.status).toBe('failed');
    expect(payloads).toEqual([payload, payload]);
  });

  test('needs one that has ended', async () => {
    const automation = await createTriggered(store, 'open');
    const runId = await acceptRun(store, automation);
    expect(await runs.retry(runId, automation, acceptLimits())).toEqual({ status: 'not_ended' });
    expect(await runs.retry(newRunId(), automation, acceptLimits())).toEqual({ status: 'not_found' });
    expect(await runs.countQueued()).toBe(1);
  });
});

test('every attempt is kept with its worker, its times and its end', async () => {
  const automation = await createTriggered(store, 'history', { attempts: 3 });
  const runId = await acceptRun(store, automation);
  const first = new HeldAttempts();
  // With one slot, it cannot take the run again while it closes.
  const one = startConsumer(store, first.execute, { workerId: 'one', concurrency: 1 });
  await first.untilStarted(runId);
  await one.close(0);
  const held = new HeldAttempts();
  startConsumer(store, held.execute, { workerId: 'two' });
  await held.untilStarted(runId);
  held.end(runId, { ...FAILED, mayRetry: true });
  await held.untilStarted(runId, runId);
  const running = (await runs.get(runId)) ?? expect.fail();
  const times = { startedAt: expect.any(Date), endedAt: expect.any(Date) };
  const before = [
    { attempt: 1, worker: 'one', ...times, interruption: 'the worker shut down' },
    { attempt: 2, worker: 'two', ...times, outcome: FAILED.outcome },
  ];
  await expect
    .poll(() => runs.attempts(running), { timeout: 20_000 })
    .toEqual([...before, { attempt: 3, worker: 'two', startedAt: expect.any(Date) }]);
  held.end(runId);
  await untilStatus(store, runId, 'succeeded');
  const ended = (await runs.get(runId)) ?? expect.fail();
  expect(await runs.attempts(ended)).toEqual([
    ...before,
    {
      attempt: 3,
      worker: 'two',
      startedAt: expect.any(Date),
      endedAt: ended.endedAt,
      outcome: SUCCEEDED.outcome,
    },
  ]);
});

test('of a run that ended with its first attempt, the job alone tells the attempt', async () => {
  const automation = await createTriggered(store, 'history', { attempts: 3 });
  startConsumer(store, async () => SUCCEEDED, { workerId: 'one' });
  const runId = await acceptRun(store, automation);
  await untilStatus(store, runId, 'succeeded');
  const { queuePrefix, openRuns } = store.keys;
  await expect.poll(() => store.redis.zcard(openRuns()), { timeout: 20_000 }).toBe(0);
  expect(await store.redis.exists(`${queuePrefix}:runs:${runId}:logs`)).toBe(0);
  const ended = (await runs.get(runId)) ?? expect.fail();
  const { startedAt, endedAt } = ended;
  expect(await runs.attempts(ended)).toEqual([
    { attempt: 1, worker: 'one', startedAt, endedAt, outcome: SUCCEEDED.outcome },
  ]);
});

describe('the overview', () => {
  test('counts what waits and names the oldest, wherever it waits', async () => {
    const limited = await createTriggered(store, 'limited', { concurrency: 1 });
    const free = await createTriggered(store, 'free', { attempts: 2 });
    expect(await runs.overview()).toEqual({ queued: 0, paused: 0, pausedBy: [], retrying: 0, running: [] });
    const attempts = holdAttempts(store, { concurrency: 2 });
    const failing = await acceptRun(store, free);
    const placed = await acceptRun(store, limited);
    await attempts.untilStarted(failing, placed);
    const parked = await acceptRun(store, limited);
    const waiting = await acceptRun(store, free);
    const later = await acceptRun(store, free);
    expect(await runs.overview()).toMatchObject({
      queued: 3,
      retrying: 0,
      oldestQueued: { id: parked, status: 'queued' },
      running: [{ id: failing }, { id: placed }],
    });
    attempts.end(failing, { ...FAILED, mayRetry: true });
    await attempts.untilStarted(failing, placed, waiting);
    expect(await runs.overview()).toMatchObject({ queued: 2, retrying: 1, oldestQueued: { id: parked } });
    await runs.cancel(parked);
    expect(await runs.overview()).toMatchObject({ queued: 1, oldestQueued: { id: later } });
  });

  test('knows when a run of an automation last succeeded', async () => {
    const automation = await createTriggered(store, 'successful');
    await createTriggered(store, 'unsuccessful');
    startConsumer(store, async () => SUCCEEDED);
    const before = Date.now();
    await untilStatus(store, await acceptRun(store, automation), 'succeeded');
    await expect
      .poll(async () => (await store.index.lastSuccesses()).get('successful')?.getTime())
      .toBeGreaterThanOrEqual(before);
    expect([...(await store.index.lastSuccesses()).keys()]).toEqual(['successful']);
    await store.automations.delete('successful');
    expect((await store.index.lastSuccesses()).size).toBe(0);
  });
});
