import { beforeEach, expect, test } from 'vitest';
import { newRunId } from '../../src/store/run-id.ts';
import { acceptRun, createTriggered, emptyStore, FAILED, SUCCEEDED, startConsumer } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const MINUTE_MS = 60_000;

const store = openTestStore();
const { counts, index, keys, redis } = store;

beforeEach(() => emptyStore(store));

/** An id whose run was accepted at a time. */
function idAt(time: number): string {
  const hex = time.toString(16).padStart(12, '0');
  return `run_${hex.slice(0, 8)}-${hex.slice(8)}${newRunId().slice(17)}`;
}

/** Ends a run of that id as a worker does. */
async function end(id: string, status: 'succeeded' | 'failed' | 'timed_out' | 'cancelled', endedAt: number) {
  await redis.zadd(keys.openRuns('a'), 0, id);
  await redis.zadd(keys.openRuns(), 0, id);
  await redis.hset(`${keys.queuePrefix}:runs:${id}`, { name: 'a', finishedOn: endedAt, returnvalue: 1 });
  const run = {
    ...{ id, automation: 'a', status, acceptedAt: new Date(endedAt), endedAt: new Date(endedAt) },
    ...{ attempt: 1, maxAttempts: 1, requestId: 'test', payloadBytes: 2 },
  };
  await index.end('a', id, { run, automationId: 'b' });
}

const total = (spans: { accepted: number; succeeded: number; failed: number; cancelled: number }[]) =>
  spans.reduce(
    (sum, { accepted, succeeded, failed, cancelled }) => [
      (sum[0] ?? 0) + accepted,
      (sum[1] ?? 0) + succeeded,
      (sum[2] ?? 0) + failed,
      (sum[3] ?? 0) + cancelled,
    ],
    [0, 0, 0, 0],
  );

test('accepted runs are counted while they wait and after they have ended, each once', async () => {
  const automation = await createTriggered(store, 'counted');
  const before = Date.now();
  await Promise.all([1, 2, 3].map(() => acceptRun(store, automation)));
  expect(total(await counts.latest(60, 1))).toEqual([3, 0, 0, 0]);
  let taken = 0;
  startConsumer(store, async () => {
    taken += 1;
    return taken === 1 ? FAILED : SUCCEEDED;
  });
  await expect.poll(async () => total(await counts.latest(60, 1, new Date()))).toEqual([3, 2, 1, 0]);
  const spans = await counts.latest(60, 1);
  expect(spans).toHaveLength(60);
  expect(
    spans.filter(({ accepted }) => accepted > 0).every(({ since }) => since.getTime() > before - MINUTE_MS),
  ).toBe(true);
});

test('a run is counted in the minute of its end, and what it ends as is one of three', async () => {
  const now = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  await end(idAt(now - 3 * MINUTE_MS), 'timed_out', now - 2 * MINUTE_MS);
  await end(idAt(now - 3 * MINUTE_MS + 1), 'cancelled', now - MINUTE_MS);
  await end(idAt(now - 3 * MINUTE_MS + 2), 'succeeded', now);
  const spans = await counts.latest(4, 1, new Date(now));
  expect(spans.map(({ since: _, ...each }) => each)).toEqual([
    { accepted: 3, succeeded: 0, failed: 0, cancelled: 0 },
    { accepted: 0, succeeded: 0, failed: 1, cancelled: 0 },
    { accepted: 0, succeeded: 0, failed: 0, cancelled: 1 },
    { accepted: 0, succeeded: 1, failed: 0, cancelled: 0 },
  ]);
});

test('counts do not change when runs are no longer kept, or when an end is told twice', async () => {
  const id = idAt(Date.now() - MINUTE_MS);
  await end(id, 'succeeded', Date.now());
  const counted = await counts.latest(60, 1);
  await index.end('a', id);
  await index.remove('a', [id]);
  expect(total(await counts.latest(60, 1))).toEqual(total(counted));
  expect(total(counted)).toEqual([1, 1, 0, 0]);
});

test('the counts of a day take at most 26 keys, all of which expire', async () => {
  const now = Date.now();
  for (let minutes = 0; minutes < 1440; minutes += 30) {
    await end(idAt(now - minutes * MINUTE_MS), 'failed', now - minutes * MINUTE_MS);
  }
  expect(total(await counts.latest(144, 10))).toEqual([48, 0, 48, 0]);
  const found = await redis.keys(keys.runCounts('*').replaceAll('{', '\\{'));
  expect(found.length).toBeLessThanOrEqual(26);
  for (const key of found) expect(await redis.ttl(key)).toBeGreaterThan(24 * 3600);
});
