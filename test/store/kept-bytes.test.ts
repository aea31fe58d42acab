import { beforeEach, expect, test } from 'vitest';
import type { ArtifactList } from '../../src/core/artifact.ts';
import type { TriggeredAutomation } from '../../src/store/automations.ts';
import type { Store } from '../../src/store/store.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import {
  acceptRun,
  createTriggered,
  emptyStore,
  SUCCEEDED,
  startConsumer,
  untilStatus,
} from '../support/runs.ts';
import { openStoreAt, openTestStore } from '../support/store.ts';

const store = openTestStore();
const { kept, keys, redis, retention, runs } = store;
const DAY_MS = 86_400_000;
const UNLIMITED = 1e12;
const privateRedis = await openPrivateRedis();

beforeEach(() => emptyStore(store));

/** Has runs executed one after the other, each with a log and an artifact of so many bytes. */
async function executed(
  at: Store,
  automation: TriggeredAutomation,
  sizes: readonly number[],
  keepBytes = UNLIMITED,
): Promise<string[]> {
  const runIds: string[] = [];
  for (const _ of sizes) runIds.push(await acceptRun(at, automation));
  const limits = { maxAgeMs: DAY_MS, maxRuns: 10_000, keepBytes };
  const consumer = startConsumer(
    at,
    async ({ id, attempt }) => {
      const data = Buffer.alloc(sizes[runIds.indexOf(id)] ?? 0, 'x');
      const entry = {
        time: new Date(),
        attempt,
        source: 'stdout',
        offset: 0,
        data: Buffer.from('x'),
      } as const;
      await at.runLogs.append(id, [entry], [], 3600);
      const list: ArtifactList = {
        artifacts: [{ name: 'file', bytes: data.length, sha256: 'hash' }],
        omitted: [],
        omittedCount: 0,
      };
      await at.artifacts.save({ id, attempt }, list, [data], 3600);
      return SUCCEEDED;
    },
    { retentionLimits: limits, concurrency: 1 },
  );
  for (const id of runIds) await untilStatus(at, id, 'succeeded');
  await expect
    .poll(() => at.redis.zcard(at.keys.endedRuns(automation.slug)), { timeout: 20_000 })
    .toBe(runIds.length);
  await consumer.close(1000);
  return runIds;
}

/** Which of these runs still have their log and their artifact. */
async function withKept(runIds: readonly string[]): Promise<string[]> {
  const found = await Promise.all(runIds.map((id) => redis.exists(...keys.keptWithRun(id))));
  return runIds.filter((_, index) => found[index] === 2);
}

test('what ended runs keep is counted for their automation, and subtracted when they are removed', async () => {
  expect(await kept.usage(UNLIMITED)).toEqual({ bytes: 0, limitBytes: UNLIMITED, automations: [] });
  await executed(store, await createTriggered(store, 'large'), [100_000, 50_000]);
  await executed(store, await createTriggered(store, 'small'), [10]);
  const { bytes, automations } = await kept.usage(UNLIMITED);
  const [large, small] = automations;
  expect([large?.slug, small?.slug]).toEqual(['large', 'small']);
  expect(large?.bytes).toBeGreaterThan(150_000);
  expect(large?.bytes).toBeLessThan(200_000);
  expect(small?.bytes).toBeLessThan(5000);
  expect(bytes).toBe((large?.bytes ?? 0) + (small?.bytes ?? 0));
  // Runs younger than a minute are not removed: this is what removing them does.
  await kept.drop((await runs.list({ automation: 'large', limit: 10 })).map(({ id }) => id));
  expect(await kept.usage(UNLIMITED)).toMatchObject({ bytes: small?.bytes, automations: [small] });
});

test('beyond the budget, what the oldest runs keep is removed; the runs stay and say so', async () => {
  const runIds = await executed(store, await createTriggered(store, 'full'), [9e4, 9e4, 9e4, 9e4]);
  const { bytes } = await kept.usage(UNLIMITED);
  await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 100, keepBytes: bytes });
  expect(await withKept(runIds)).toEqual(runIds);
  await retention.sweep({ maxAgeMs: DAY_MS, maxRuns: 100, keepBytes: Math.floor(bytes * 0.6) });
  expect(await withKept(runIds)).toEqual(runIds.slice(2));
  expect(await Promise.all(runIds.map((id) => kept.wasDropped(id)))).toEqual([true, true, false, false]);
  expect((await runs.list({ automation: 'full', limit: 10 })).map(({ status }) => status)).toEqual(
    Array.from(runIds, () => 'succeeded'),
  );
  expect((await kept.usage(UNLIMITED)).bytes).toBe(bytes / 2);
});

test('the end of a run is enough to bring what is kept back into the budget, without a sweep', async () => {
  const automation = await createTriggered(store, 'busy');
  const runIds = await executed(store, automation, [9e4, 9e4, 9e4, 9e4, 9e4], 250_000);
  await expect.poll(async () => (await kept.usage(250_000)).bytes).toBeLessThan(250_000);
  expect((await withKept(runIds)).at(-1)).toBe(runIds.at(-1));
});

test('a run that was accepted before the removed ones and ends after them is found', async () => {
  const early = await createTriggered(store, 'early');
  const earlyId = await acceptRun(store, early);
  await redis.zrem(keys.openRuns(), earlyId);
  const [other = ''] = await executed(store, await createTriggered(store, 'later'), [9e4]);
  await kept.shrink(1);
  expect(await kept.wasDropped(other)).toBe(true);
  await untilStatus(store, earlyId, 'succeeded');
  await redis.zadd(keys.endedRuns(), 0, earlyId);
  await kept.shrink(1);
  expect((await kept.usage(1)).bytes).toBe(0);
});

test('a count that is wrong, because somebody removed runs without orc, is corrected', async () => {
  await redis.hset(keys.keptBytes, 'gone', 1e9, ':total', 1e9);
  const [runId = ''] = await executed(store, await createTriggered(store, 'right'), [10]);
  await kept.shrink(1e6);
  expect(await kept.usage(1e6)).toMatchObject({ bytes: 0, automations: [] });
  expect(await kept.wasDropped(runId)).toBe(true);
});

test('in a Redis that is full, a worker still removes what is beyond the budget', async () => {
  await privateRedis.start();
  const full = openStoreAt(privateRedis.url, 'patient');
  const runIds = await executed(full, await createTriggered(full, 'full'), [9e4, 9e4]);
  await full.redis.config('SET', 'maxmemory', 1);
  await expect(full.redis.set('any', 'value')).rejects.toThrow('OOM');
  await full.retention.takeTurn('worker', { maxAgeMs: DAY_MS, maxRuns: 100 });
  const keptKeys = runIds.flatMap(full.keys.keptWithRun);
  expect(await full.redis.exists(...keptKeys)).toBe(0);
  expect(await full.kept.usage(undefined)).toMatchObject({ bytes: 0, limitBytes: 0 });
});

test('without KEEP_BYTES the budget is 1 GiB', async () => {
  expect(await kept.usage(undefined)).toMatchObject({ limitBytes: 1_073_741_824 });
});
