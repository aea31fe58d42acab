import { beforeEach, expect, test } from 'vitest';
import type { RunAttempt } from '../../src/core/run.ts';
import type { TriggeredAutomation } from '../../src/store/automations.ts';
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
const { redis, keys, lanes, automations } = store;

beforeEach(() => emptyStore(store));

const pause = (slug: string) => automations.setPaused(slug, true);

/** As `orc automations resume` does. */
async function resume({ id, slug }: TriggeredAutomation): Promise<void> {
  expect(await automations.setPaused(slug, false)).toBe(id);
  await lanes.release({ automationId: id, slug });
}

const parkedRuns = ({ id }: TriggeredAutomation) => redis.zrange(keys.lane(id), 0, '-1');

/** Waits until these runs wait in the automation's lane, as jobs that no worker takes. */
async function untilParked(automation: TriggeredAutomation, ...runIds: string[]): Promise<void> {
  await expect.poll(() => parkedRuns(automation), { timeout: 20_000 }).toEqual(runIds);
  const delayed = () => redis.zrange(`${keys.queuePrefix}:runs:delayed`, 0, '-1');
  await expect.poll(async () => (await delayed()).toSorted(), { timeout: 20_000 }).toEqual(runIds);
}

test.each([undefined, 2])(
  'runs of a paused automation are accepted and wait, and start in order when it is resumed (concurrency %s)',
  async (concurrency) => {
    const automation = await createTriggered(store, 'paused', concurrency ? { concurrency } : {});
    const other = await createTriggered(store, 'other');
    const attempts = holdAttempts(store, { concurrency: 1 });
    await pause('paused');
    const waiting = [await acceptRun(store, automation), await acceptRun(store, automation)];
    const elsewhere = await acceptRun(store, other);
    await attempts.untilStarted(elsewhere);
    expect(await parkedRuns(automation)).toEqual(waiting);
    expect(await store.runs.depth()).toEqual({ queued: 2, paused: 2, retrying: 0 });
    await lanes.tidy();
    expect(await takeableRuns(store)).toEqual([]);
    await resume(automation);
    const latest = await acceptRun(store, automation);
    attempts.end(elsewhere);
    for (const runId of waiting) {
      await expect.poll(() => attempts.startedIds.at(-1), { timeout: 20_000 }).toBe(runId);
      attempts.end(runId);
    }
    await attempts.untilStarted(elsewhere, ...waiting, latest);
  },
);

test('with --when-busy skip, runs of a paused automation wait, and after the resume no place is skipped for them', async () => {
  const automation = await createTriggered(store, 'skipping', { concurrency: 1, whenBusy: 'skip' });
  const attempts = holdAttempts(store);
  await pause('skipping');
  const waiting = [await acceptRun(store, automation), await acceptRun(store, automation)];
  for (const runId of waiting) expect((await store.runs.get(runId))?.status).toBe('queued');
  await resume(automation);
  const [first = '', second = ''] = waiting;
  await attempts.untilStarted(first);
  const skipped = await acceptRun(store, automation);
  attempts.end(first);
  await attempts.untilStarted(first, second);
  attempts.end(second);
  await untilStatus(store, second, 'succeeded');
  expect(await store.runs.get(skipped)).toMatchObject({
    status: 'cancelled',
    outcome: { reason: 'automation_busy' },
  });
});

test('they count for the capacity of the queue', async () => {
  const automation = await createTriggered(store, 'paused');
  await pause('paused');
  await acceptRun(store, automation);
  const run = { id: newRunId(), payload: '{}', requestId: 'r' };
  const limits = { ...acceptLimits(), maxQueuedRuns: 1 };
  expect(await store.runs.accept(automation, run, limits)).toEqual({ status: 'full' });
});

test('after the resume, a run waits behind those that were accepted before it', async () => {
  const automation = await createTriggered(store, 'busy');
  await pause('busy');
  const waiting = await Promise.all(Array.from({ length: 1005 }, () => acceptRun(store, automation)));
  await resume(automation);
  const later = await acceptRun(store, automation);
  expect(await parkedRuns(automation)).toEqual([...waiting.slice(1000), later]);
  // Executing them all would take seconds.
  await Promise.all(waiting.slice(0, 990).map((runId) => store.runs.cancel(runId)));
  const order: string[] = [];
  startConsumer(
    store,
    async ({ id }) => {
      order.push(id);
      return SUCCEEDED;
    },
    { concurrency: 1 },
  );
  await expect.poll(() => order.length, { timeout: 20_000 }).toBe(16);
  expect(order).toEqual([...waiting.slice(990), later]);
  // From then on, its runs need no place any more.
  await expect.poll(() => redis.exists(keys.lanes), { timeout: 20_000 }).toBe(0);
  await acceptRun(store, automation);
  expect(await redis.exists(keys.lanes)).toBe(0);
});

test('a run that waits in the queue already, and a further attempt, are not started', async () => {
  const automation = await createTriggered(store, 'late', { attempts: 2 });
  const other = await createTriggered(store, 'other');
  const attempts = new HeldAttempts();
  const first = startConsumer(store, attempts.execute, { concurrency: 1 });
  const executing = await acceptRun(store, automation);
  const queued = await acceptRun(store, automation);
  const elsewhere = await acceptRun(store, other);
  await attempts.untilStarted(executing);
  await pause('late');
  attempts.end(executing, { ...FAILED, mayRetry: true });
  await attempts.untilStarted(executing, elsewhere);
  attempts.end(elsewhere);
  await untilParked(automation, executing, queued);
  const times = { startedAt: expect.any(Date), firstStartedAt: expect.any(Date) };
  expect(await store.runs.get(executing)).toMatchObject({ status: 'retrying', attempt: 1, ...times });
  expect(await store.runs.get(queued)).toMatchObject({ status: 'queued', attempt: 0 });
  // Nothing of it is in a worker.
  await first.close(60_000);

  await resume(automation);
  startConsumer(store, attempts.execute, { concurrency: 1 });
  for (const runId of [executing, queued]) {
    await expect.poll(() => attempts.startedIds.at(-1), { timeout: 20_000 }).toBe(runId);
    attempts.end(runId);
    await untilStatus(store, runId, 'succeeded');
  }
  expect(attempts.started.filter(({ id }) => id === executing).map(({ attempt }) => attempt)).toEqual([1, 2]);
  await expect.poll(() => redis.exists(keys.lanes), { timeout: 20_000 }).toBe(0);
});

test('a run that waits can be cancelled, and one of an automation that is disabled as well gets to a worker, which cancels it', async () => {
  const automation = await createTriggered(store, 'paused');
  await pause('paused');
  const [cancelled, released] = [await acceptRun(store, automation), await acceptRun(store, automation)];
  expect(await store.runs.cancel(cancelled)).toBe('cancelled');
  expect(await parkedRuns(automation)).toEqual([released]);
  await automations.setEnabled('paused', false);
  await lanes.tidy();
  expect(await takeableRuns(store)).toEqual([released]);
});

test('an automation that is created again is not paused, and runs of the deleted one are not held', async () => {
  const automation = await createTriggered(store, 'again');
  await pause('again');
  const waiting = await acceptRun(store, automation);
  await automations.delete('again');
  const next = await createTriggered(store, 'again');
  await lanes.tidy();
  const run = await acceptRun(store, next);
  expect(await takeableRuns(store)).toEqual([waiting, run]);
});

test.each([undefined, 1])(
  'no run is lost or started while it is paused, however often it is paused and resumed (concurrency %s)',
  async (concurrency) => {
    const automation = await createTriggered(store, 'toggled', {
      attempts: 2,
      ...(concurrency && { concurrency }),
    });
    const started = new Map<string, number[]>();
    let isPaused = false;
    const wrong: string[] = [];
    const execute = async ({ id, attempt }: RunAttempt) => {
      if (isPaused) wrong.push(`${id} started while paused`);
      started.set(id, [...(started.get(id) ?? []), attempt]);
      await redis.ping();
      // The pause before a second attempt would hold the only place for a second.
      const fails = attempt === 1 && concurrency === undefined && started.size % 3 === 0;
      return fails ? { ...FAILED, mayRetry: true } : SUCCEEDED;
    };
    for (const workerId of ['one', 'two']) startConsumer(store, execute, { workerId, concurrency: 5 });
    const accepted: string[] = [];
    for (let round = 0; round < 12; round += 1) {
      for (let count = 0; count < 10; count += 1) accepted.push(await acceptRun(store, automation));
      await pause('toggled');
      // What was begun before the pause may get here a moment later.
      for (let turn = 0; turn < 20; turn += 1) await redis.ping();
      isPaused = true;
      for (let count = 0; count < 5; count += 1) accepted.push(await acceptRun(store, automation));
      isPaused = false;
      await resume(automation);
    }
    for (const runId of accepted) await untilStatus(store, runId, 'succeeded');
    expect(wrong).toEqual([]);
    for (const runId of accepted) {
      const attempts = started.get(runId) ?? [];
      expect(attempts).toEqual(attempts.length === 1 ? [1] : [1, 2]);
    }
    await expect.poll(() => redis.exists(keys.lanes), { timeout: 20_000 }).toBe(0);
    expect(await store.runs.depth()).toEqual({ queued: 0, paused: 0, retrying: 0 });
  },
);
