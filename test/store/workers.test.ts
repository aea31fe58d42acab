import { afterEach, beforeEach, expect, test } from 'vitest';
import { openPrivateRedis } from '../support/private-redis.ts';
import { emptyStore } from '../support/runs.ts';
import { openStoreAt, openTestStore } from '../support/store.ts';

const privateRedis = await openPrivateRedis();
const store = openTestStore();
const { redis, keys, workers } = store;

beforeEach(() => emptyStore(store));
afterEach(() => privateRedis.stop());

test('a probe counts the workers that gave a sign of life, each of them once', async () => {
  expect(await workers.probe()).toEqual({ workersAlive: 0 });
  for (const id of ['one', 'two', 'one']) await workers.beat(id);
  expect(await workers.probe()).toEqual({ workersAlive: 2 });
});

test('workers that have no git are known as long as they say so', async () => {
  for (const id of ['with', 'without', 'silent']) await workers.beat(id);
  for (const id of ['without', 'silent', 'gone']) await workers.lacksGit(id);
  await workers.leave('gone');
  const [now] = await redis.time();
  await redis.zadd(keys.workersWithoutGit, Number(now) - 60, 'silent');
  expect(await workers.withoutGit()).toEqual(['without']);
  await workers.lacksGit('without');
  expect(await redis.zcard(keys.workersWithoutGit)).toBe(1);
});

test('a worker that leaves is not counted any more', async () => {
  for (const id of ['one', 'two']) await workers.beat(id);
  await workers.leave('one');
  expect(await workers.probe()).toEqual({ workersAlive: 1 });
});

test('a worker that has been silent for long is not counted, until it gives a sign of life again', async () => {
  for (const id of ['silent', 'alive']) await workers.beat(id);
  const [now] = await redis.time();
  await redis.zadd(keys.workers, Number(now) - 60, 'silent');
  expect(await workers.probe()).toEqual({ workersAlive: 1 });
  await workers.beat('silent');
  expect(await workers.probe()).toEqual({ workersAlive: 2 });
});

test('the slots of the workers alive are added up, and are unknown while one does not say how many it has', async () => {
  expect(await workers.alive()).toEqual({ workersAlive: 0, workersDraining: [], slots: 0 });
  await workers.beat('one', 10);
  await workers.beat('two', 5);
  expect(await workers.alive()).toEqual({ workersAlive: 2, workersDraining: [], slots: 15 });
  await workers.beat('of an earlier version');
  expect(await workers.alive()).toEqual({ workersAlive: 3, workersDraining: [] });
  await workers.leave('of an earlier version');
  const [now] = await redis.time();
  await redis.zadd(keys.workers, Number(now) - 60, 'one');
  expect(await workers.alive()).toEqual({ workersAlive: 1, workersDraining: [], slots: 5 });
});

test('the slots of a dead worker are forgotten with it', async () => {
  for (const id of ['dead', 'alive']) await workers.beat(id, 10);
  await redis.zrem(keys.workers, 'dead');
  await workers.beat('alive', 10);
  expect(await redis.hkeys(keys.workerSlots)).toEqual(['alive']);
  await workers.leave('alive');
  expect(await redis.exists(keys.workerSlots)).toBe(0);
});

test.each([
  ['has too few replicas', 'min-replicas-to-write', 'NOREPLICAS'],
  ['is out of memory', 'maxmemory', 'OOM'],
])('a probe fails when Redis answers, but takes no writes because it %s', async (_, setting, error) => {
  await privateRedis.start();
  const other = openStoreAt(privateRedis.url, 'patient');
  expect(await other.workers.probe()).toEqual({ workersAlive: 0 });
  await other.redis.config('SET', setting, 1);
  await expect(other.workers.probe()).rejects.toThrow(error);
});

test('a worker that drains is no longer alive, gives no slots, and is forgotten when it leaves', async () => {
  await workers.beat('one', 10);
  await workers.beat('two', 5);
  await workers.beatDraining('one');
  expect(await workers.alive()).toEqual({ workersAlive: 1, workersDraining: ['one'], slots: 5 });
  expect(await workers.probe()).toMatchObject({ workersAlive: 1 });
  await workers.leave('one');
  expect(await workers.alive()).toEqual({ workersAlive: 1, workersDraining: [], slots: 5 });
});
