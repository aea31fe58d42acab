import { v7 as uuidv7 } from 'uuid';
import { beforeEach, expect, test, vi } from 'vitest';
import { newRunId } from '../../src/store/run-id.ts';
import {
  acceptRun,
  acceptWithId,
  createTriggered,
  emptyStore,
  HeldAttempts,
  SUCCEEDED,
  startConsumer,
  untilStatus,
} from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();
const { redis, keys, runs, retention } = store;
const DAY_MS = 86_400_000;

beforeEach(() => emptyStore(store));

/** Has runs executed one after the other, each with a log. */
async function executed(
  slug: string,
  count: number,
  { acceptedAt = Date.now() - 3_600_000, ...changes }: { keepRuns?: number; acceptedAt?: number } = {},
): Promise<string[]> {
  const automation = await createTriggered(store, slug, changes);
  const ids = Array.from({ length: count }, () => `run_${uuidv7({ msecs: acceptedAt })}`).sort();
  for (const id of ids) await acceptWithId(store, automation, id);
  const consumer = startConsumer(store, async ({ id }) => {
    const entry = {
      time: new Date(),
      attempt: 1,
      source: 'stdout',
      offset: 0,
      data: Buffer.from('x'),
    } as const;
    await store.runLogs.append(id, [entry], [], 3600);
    await redis.set(keys.result(id), '{}');
    return SUCCEEDED;
  });
  for (const id of ids) await untilStatus(store, id, 'succeeded');
  await expect.poll(() => redis.zcard(keys.endedRuns(slug))).toBe(count);
  await consumer.close(1000);
  return ids;
}

async function listed(automation: string): Promise<string[]> {
  return (await runs.list({ automation, limit: 1000 })).map(({ id }) => id).reverse();
}

async function keysNaming(runId: string): Promise<string[]> {
  return redis.keys(`{${store.prefix}}*${runId}*`);
}

test('of the runs beyond the maximum the oldest are removed, with all that belongs to them', async () => {
  const ids = await executed('many', 7);
  expect(await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 4 })).toBe(3);
  expect(await listed('many')).toEqual(ids.slice(3));
  expect(await redis.zcard(keys.endedRuns('many'))).toBe(4);
  for (const id of ids.slice(0, 3)) expect(await keysNaming(id)).toEqual([]);
  expect(await keysNaming(ids[3] ?? '')).toContain(keys.runLog(ids[3] ?? ''));
  expect(await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 4 })).toBe(0);
});

test('workers that sweep at the same time remove together what one of them would', async () => {
  const ids = await executed('swept', 20);
  const sweep = () => retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 8 });
  const { zcard } = redis;
  vi.spyOn(redis, 'zcard').mockImplementationOnce(async (key) => {
    const count = await zcard.call(redis, key);
    // The other one comes between this one's count and what it does about it.
    expect(await sweep()).toBe(12);
    return count;
  });
  expect(await sweep()).toBe(0);
  expect(await listed('swept')).toEqual(ids.slice(-8));
});

test("an automation's own maximum counts instead of the general one", async () => {
  const ids = await executed('own', 5, { keepRuns: 2 });
  expect(await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 100 })).toBe(3);
  expect(await listed('own')).toEqual(ids.slice(3));
});

test('runs that ended too long ago are removed, and not those that only began long ago', async () => {
  const ids = await executed('old', 3, { acceptedAt: Date.now() - 3 * DAY_MS });
  for (const id of ids.slice(0, 2)) {
    await redis.hset(`${keys.queuePrefix}:runs:${id}`, { finishedOn: Date.now() - 2 * DAY_MS });
  }
  expect(await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 100 })).toBe(2);
  expect(await listed('old')).toEqual(ids.slice(2));
});

test('runs that have not ended are not removed, however many and old they are', async () => {
  const automation = await createTriggered(store, 'open', { concurrency: 1 });
  const ids = [await acceptRun(store, automation), await acceptRun(store, automation)];
  const attempts = new HeldAttempts();
  startConsumer(store, attempts.execute);
  await attempts.untilStarted(ids[0] ?? '');
  expect(await retention.sweep({ maxAgeMs: 0, maxRuns: 0 })).toBe(0);
  expect(await listed('open')).toEqual(ids);
});

test('runs of a deleted automation are removed as well, and then it is forgotten', async () => {
  const ids = await executed('gone', 2);
  await store.automations.delete('gone');
  expect(await listed('gone')).toEqual(ids);
  expect((await runs.list({ limit: 10 })).map(({ id }) => id).reverse()).toEqual(ids);
  expect(await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 0 })).toBe(2);
  await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 0 });
  expect(await redis.exists(keys.formerAutomations, keys.latestRuns)).toBe(0);
});

test('what a crash left behind in the index is put right', async () => {
  const [ended = ''] = await executed('crashed', 1);
  const missing = newRunId();
  await redis.zrem(keys.endedRuns('crashed'), ended);
  await redis.zadd(keys.openRuns('crashed'), 0, ended, 0, missing);
  await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 100 });
  expect(await redis.zrange(keys.openRuns('crashed'), 0, '-1')).toEqual([]);
  expect(await listed('crashed')).toEqual([ended]);
});

test('only one worker sweeps in a turn', async () => {
  await executed('turns', 2);
  await retention.takeTurn('one', { maxAgeMs: DAY_MS, maxRuns: 1 });
  expect(await listed('turns')).toHaveLength(1);
  await retention.takeTurn('two', { maxAgeMs: DAY_MS, maxRuns: 0 });
  expect(await listed('turns')).toHaveLength(1);
});
