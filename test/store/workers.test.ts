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
