import { beforeEach, describe, expect, test } from 'vitest';
import type { Run, RunStatus } from '../../src/core/run.ts';
import { acceptedAtOf, newRunId } from '../../src/store/run-id.ts';
import type { IndexPart } from '../../src/store/run-index.ts';
import { emptyStore } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const RUN: Omit<Run, 'id' | 'status'> = {
  automation: 'a',
  acceptedAt: new Date(9000),
  endedAt: new Date(10_000),
  attempt: 1,
  maxAttempts: 1,
  requestId: 'test-request',
  payloadBytes: 2,
};

const store = openTestStore();
const { index, keys, redis } = store;
const BOTH: IndexPart[] = ['open', 'ended'];

beforeEach(() => emptyStore(store));

/** Enters runs in these sorted sets, and returns their ids, the newest first. */
async function enter(count: number, ...sets: string[]): Promise<string[]> {
  const ids = Array.from({ length: count }, newRunId);
  for (const set of sets) await redis.zadd(set, ...ids.flatMap((id) => [0, id]));
  return ids.reverse();
}

/** Ends runs as a worker does. */
async function end(ids: string[], slug = 'a'): Promise<void> {
  for (const id of ids) await index.end(slug, id);
}

async function pagesOf(slug: string | undefined, parts: IndexPart[], wanted: number): Promise<string[][]> {
  const pages: string[][] = [];
  for await (const page of index.newestFirst(slug, parts, wanted)) pages.push(page);
  return pages;
}

const members = (set: string) => redis.zrange(set, 0, '-1', 'REV');

describe('newestFirst', () => {
  test.each<[string | undefined, IndexPart[]]>([
    [undefined, BOTH],
    ['a', BOTH],
    ['a', ['open']],
    ['a', ['ended']],
  ])('yields each run of %s in %j once, the newest first, in pages that grow', async (slug, parts) => {
    const ids = await enter(400, keys.openRuns('a'), keys.openRuns());
    await enter(60, keys.openRuns('b'));
    const ended = ids.filter((_, position) => position % 3 === 0 || position > 300);
    await end(ended);
    const pages = await pagesOf(slug, parts, 10);
    const isWanted = (id: string) => parts.includes(ended.includes(id) ? 'ended' : 'open');
    expect(pages.flat()).toEqual(ids.filter(isWanted));
    expect(pages[0]?.length).toBeGreaterThanOrEqual(10);
    expect(pages.length).toBeLessThan(10);
  });

  test('yields nothing, and no empty page, where there are no runs', async () => {
    expect(await pagesOf(undefined, BOTH, 10)).toEqual([]);
  });

  test.each([10, 20])('yields all of %i runs, of which the first page holds 10', async (count) => {
    const ids = await enter(count, keys.openRuns());
    expect((await pagesOf(undefined, ['open'], 10)).flat()).toEqual(ids);
  });

  test('yields a run that ends between two pages, before or after its place, exactly once', async () => {
    const ids = await enter(300, keys.openRuns('a'), keys.openRuns());
    const found: string[] = [];
    for await (const page of index.newestFirst(undefined, BOTH, 20)) {
      found.push(...page);
      // Of those that were read already, and of those that are still to come.
      await end([...found.slice(-5), ...ids.slice(found.length, found.length + 30)]);
    }
    expect(found).toEqual(ids);
    expect((await members(keys.endedRuns())).length).toBeGreaterThan(100);
  });

  test('yields every run once while runs end all the time', async () => {
    const ids = await enter(500, keys.openRuns('a'), keys.openRuns());
    const ending = end(ids.toSorted());
    let isEnding = true;
    void ending.finally(() => {
      isEnding = false;
    });
    do {
      expect((await pagesOf(undefined, BOTH, 7)).flat()).toEqual(ids);
    } while (isEnding);
    await ending;
  });
});

describe('adopt', () => {
  /** What a process of the version before does when it accepts runs. */
  async function acceptAsBefore(slug: string, count: number, acceptedAt?: number): Promise<string[]> {
    const ids = await enter(count, keys.openRuns(slug));
    await redis.zadd(keys.latestRuns, acceptedAt ?? acceptedAtOf(ids[0] ?? '').getTime(), slug);
    return ids;
  }

  test('lists open and ended runs of every automation that is noted, more than are adopted together', async () => {
    const many = await acceptAsBefore('a', 2100);
    const few = await acceptAsBefore('b', 3);
    await redis.zrem(keys.openRuns('a'), ...many.slice(0, 50));
    await redis.zadd(keys.endedRuns('a'), ...many.slice(0, 50).flatMap((id) => [0, id]));
    await index.adopt();
    expect(await members(keys.openRuns())).toEqual([...few, ...many.slice(50)]);
    expect(await members(keys.endedRuns())).toEqual(many.slice(0, 50));
    await index.adopt();
    expect(await redis.zcard(keys.openRuns())).toBe(2053);
  });

  test('forgets a note once no other run can be accepted in its millisecond', async () => {
    await acceptAsBefore('old', 1, Date.now() - 5000);
    await acceptAsBefore('new', 1, Date.now());
    await index.adopt();
    expect(await members(keys.latestRuns)).toEqual(['new']);
  });

  test('adopts what an automation accepts after its note was forgotten', async () => {
    const first = await acceptAsBefore('a', 1, Date.now() - 5000);
    await index.adopt();
    const second = await acceptAsBefore('a', 1);
    expect((await pagesOf(undefined, BOTH, 10)).flat()).toEqual([...second, ...first]);
  });

  test('leaves runs alone whose automation is not noted', async () => {
    await enter(3, keys.openRuns('a'));
    await index.adopt();
    expect(await members(keys.openRuns())).toEqual([]);
  });

  test('lists a run once that ends while it is adopted', async () => {
    const ids = await acceptAsBefore('a', 1500);
    await Promise.all([index.adopt(), end(ids)]);
    const [open, ended] = await Promise.all([members(keys.openRuns()), members(keys.endedRuns())]);
    expect([open, ended]).toEqual([[], ids]);
  });
});

describe('failed runs', () => {
  const HOUR_MS = 3_600_000;
  const jobKey = (runId: string) => `${keys.queuePrefix}:runs:${runId}`;

  /** What BullMQ keeps of an ended run. */
  async function storeJob(slug: string, endedAt: number, status: string): Promise<string> {
    const runId = newRunId();
    const outcome = JSON.stringify({ status, message: '' });
    const ending = status === 'succeeded' ? { returnvalue: outcome } : { failedReason: outcome };
    await redis.hset(jobKey(runId), { name: slug, timestamp: endedAt, finishedOn: endedAt, ...ending });
    if (status !== 'succeeded') await redis.zadd(`${keys.queuePrefix}:runs:failed`, endedAt, runId);
    return runId;
  }

  async function failedIds(slug?: string, period: { since?: Date; until?: Date } = {}, wanted = 10) {
    const found: string[] = [];
    for await (const page of index.failedFirst(slug, wanted, period)) found.push(...page);
    return found;
  }

  test('are listed by their end, neither succeeded nor cancelled ones among them', async () => {
    await index.adoptFailed();
    const ids: string[] = [];
    for (const [age, status] of ['timed_out', 'succeeded', 'failed', 'cancelled'].entries()) {
      const id = await storeJob('a', 10_000 - age * 1000, status);
      await redis.zadd(keys.openRuns('a'), 0, id);
      const run = { ...RUN, id, status: status as RunStatus };
      await index.end('a', id, { run, automationId: '' });
      ids.push(id);
    }
    const [timedOut, , failed] = ids;
    expect(await failedIds()).toEqual([timedOut, failed]);
    expect(await failedIds('a', { until: new Date(10_000) })).toEqual([failed]);
    expect(await failedIds('a', { since: new Date(10_000) })).toEqual([timedOut]);
    expect(await index.countFailed(['a', 'b'], new Date(9000))).toEqual([1, 0]);
    await index.remove('a', ids);
    expect([await failedIds(), await failedIds('a')]).toEqual([[], []]);
  });

  test('of the version before are adopted, the ones that it ends later by the next sweep', async () => {
    const now = Date.now();
    const old = await storeJob('a', now - HOUR_MS, 'failed');
    await storeJob('a', now - HOUR_MS, 'cancelled');
    expect(await failedIds()).toEqual([old]);
    // A clock that is a little behind.
    const latest = await storeJob('b', now - HOUR_MS - 30_000, 'timed_out');
    expect(await failedIds()).toEqual([old]);
    await index.adoptFailed();
    expect(await failedIds()).toEqual([old, latest]);
    expect(await failedIds('b')).toEqual([latest]);
  });

  test('are dropped when they ended before a time', async () => {
    const now = Date.now();
    await storeJob('a', now - HOUR_MS, 'failed');
    const kept = await storeJob('a', now, 'failed');
    await index.adoptFailed();
    await index.dropFailed(['a'], now);
    expect([await failedIds(), await failedIds('a')]).toEqual([[kept], [kept]]);
  });

  test.each([1, 7, 50])(
    'are listed once each, however many ended together, in pages of %i and more',
    async (wanted) => {
      await index.adoptFailed();
      const ids = Array.from({ length: 300 }, newRunId);
      const ends = ids.map((_, position) => Math.floor(position / 120));
      await redis.zadd(keys.failedRuns(), ...ids.flatMap((id, position) => [ends[position] ?? 0, id]));
      expect(await failedIds(undefined, {}, wanted)).toEqual(ids.toReversed());
    },
  );
});

test('startingWith finds runs by the beginning of their ids, open and ended ones, as many as asked for', async () => {
  const ids = await enter(40, keys.openRuns('a'), keys.openRuns());
  await end(ids.slice(20));
  const [newest = ''] = ids;
  expect(await index.startingWith(newest, 5)).toEqual([newest]);
  expect(await index.startingWith('run_0', 5)).toEqual(ids.slice(-5).toReversed());
  expect(await index.startingWith('run_ffffffff', 5)).toEqual([]);
  expect(await index.newest('a')).toBe(newest);
  expect(await index.newest('b')).toBeUndefined();
});

test('counts the runs that were accepted since a time', async () => {
  const ids = await enter(5, keys.openRuns('a'), keys.openRuns());
  await end(ids.slice(2));
  const since = acceptedAtOf(ids.at(-1) ?? '');
  expect(await index.countAccepted(['a', 'b'], since)).toEqual([5, 0]);
  expect(await index.countAccepted(['a'], new Date(Date.now() + 1000))).toEqual([0]);
});
