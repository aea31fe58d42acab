import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { addJobScript } from '../../src/store/accept-script.ts';
import { PARKED_MS } from '../../src/store/lanes.ts';
import { BACKOFF_TYPE, QueueUnavailableError } from '../../src/store/queue.ts';
import type { NewRun } from '../../src/store/run-acceptance.ts';
import { newRunId } from '../../src/store/run-id.ts';
import type { Store } from '../../src/store/store.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { acceptLimits, createTriggered, emptyStore } from '../support/runs.ts';
import { openStoreAt, openTestStore } from '../support/store.ts';

/** For the test that fills it: the tests of other files use the same Redis as the others here. */
const privateRedis = await openPrivateRedis();
const store = openTestStore();
const { redis, keys, runs } = store;

beforeEach(() => emptyStore(store));

function newRun(changes: Partial<NewRun> = {}): NewRun {
  return { id: newRunId(), payload: '{}', requestId: 'test-request', ...changes };
}

/** Everything in Redis but what tells the time. */
async function everything({ redis, keys }: Store = store): Promise<Map<string, string | undefined>> {
  const found = (await redis.keys(`${keys.queuePrefix}*`)).sort();
  const values = await Promise.all(found.map((key) => redis.dumpBuffer(key)));
  return new Map(found.map((key, index) => [key, values[index]?.toString('base64')]));
}

// The script takes BullMQ's own as functions, with their keys and arguments: a new version of BullMQ is to be read first.
test.each([
  ['a run that can be taken at once', 0, 9, '5ab432e88830d573e2fa33392ffbd4ad25a9b100'],
  ['a run that waits', 1, 6, '81698fd2d28e7db1787595b3c464b188fa78bdcf'],
])("BullMQ's script for %s is the one that was read", async (_, delay, numberOfKeys, sha1) => {
  const queue = await store.queue.open();
  const script = await addJobScript(redis, queue, delay);
  expect(script.keys).toHaveLength(numberOfKeys);
  expect(createHash('sha1').update(script.lua).digest('hex')).toBe(sha1);
});

test.each([
  ['that can be taken at once', 0],
  ['that waits in a lane', PARKED_MS],
])('the job of a run %s is the one that BullMQ itself would add', async (_, delay) => {
  const isParked = delay > 0;
  const automation = await createTriggered(store, 'same', {
    attempts: 3,
    ...(isParked && { concurrency: 1 }),
  });
  if (isParked) await runs.accept(automation, newRun(), acceptLimits());
  const run = newRun();
  await runs.accept(automation, run, acceptLimits());
  const queue = await store.queue.open();
  const accepted = (await queue.getJob(run.id)) ?? expect.fail();
  const { name, data, opts, timestamp } = accepted;
  const added = await queue.add(name, data, { ...opts, timestamp, delay, jobId: 'added' });
  const [ours, theirs] = await Promise.all(
    [run.id, 'added'].map(async (id) => {
      const { opts: options = '', ...fields } = await redis.hgetall(queue.toKey(id));
      const { jobId: _id, timestamp: _timestamp, ...rest } = JSON.parse(options);
      return { ...fields, options: { delay: 0, ...rest } };
    }),
  );
  expect(ours).toEqual(theirs);
  expect(ours?.options).toEqual({ attempts: 3, backoff: { type: BACKOFF_TYPE }, stackTraceLimit: 0, delay });
  expect(await accepted.getState()).toBe(await added.getState());
});

test('a run is accepted once, however often it is asked for', async () => {
  const automation = await createTriggered(store, 'once', { rate: { limit: 2, windowMs: 60_000 } });
  const run = newRun();
  const first = await runs.accept(automation, run, acceptLimits());
  expect(first).toEqual({ status: 'accepted', runId: run.id, rate: { remaining: 1, resetMs: 60_000 } });
  const before = await everything();
  expect(await runs.accept(automation, run, acceptLimits())).toEqual({ status: 'accepted', runId: run.id });
  expect(await everything()).toEqual(before);
});

describe('a run is not accepted, and nothing is written,', () => {
  test('when Redis executes the script after its deadline', async () => {
    const automation = await createTriggered(store, 'late');
    const before = await everything();
    const limits = { ...acceptLimits(), endsAt: Date.now() - 1 };
    await expect(runs.accept(automation, newRun(), limits)).rejects.toThrow();
    // What was sent is executed before this is.
    await redis.ping();
    expect(await everything()).toEqual(before);
  });

  test('when its automation was disabled, deleted, or given another key since', async () => {
    const automation = await createTriggered(store, 'changed');
    await store.automations.setEnabled('changed', false);
    expect(await runs.accept(automation, newRun(), acceptLimits())).toEqual({ status: 'disabled' });
    await store.automations.setEnabled('changed', true);
    await store.automations.rotateKey('changed', 0);
    expect(await runs.accept(automation, newRun(), acceptLimits())).toEqual({ status: 'rejected' });
    await store.automations.delete('changed');
    expect(await runs.accept(automation, newRun(), acceptLimits())).toEqual({ status: 'rejected' });
    expect(await runs.list({ limit: 10 })).toEqual([]);
  });

  test('when the queue is full, by runs that wait in lanes too', async () => {
    const limited = await createTriggered(store, 'limited', { concurrency: 1 });
    const limits = { ...acceptLimits(), maxQueuedRuns: 3 };
    for (let count = 0; count < 3; count += 1) {
      expect(await runs.accept(limited, newRun(), limits)).toMatchObject({ status: 'accepted' });
    }
    const before = await everything();
    expect(await runs.accept(limited, newRun(), limits)).toEqual({ status: 'full' });
    expect(await everything()).toEqual(before);
  });

  test('when Redis is out of memory, and its idempotency key stays free', async () => {
    await privateRedis.start();
    const full = openStoreAt(privateRedis.url, 'patient');
    const automation = await createTriggered(full, 'full', { concurrency: 1 });
    const before = await everything(full);
    const run = newRun({ idempotencyKey: 'one' });
    await full.redis.config('SET', 'maxmemory', 1);
    const refused = full.runs.accept(automation, run, acceptLimits());
    await expect(refused.finally(() => full.redis.config('SET', 'maxmemory', 0))).rejects.toThrow(
      QueueUnavailableError,
    );
    expect(await everything(full)).toEqual(before);
    expect(await full.runs.accept(automation, run, acceptLimits())).toMatchObject({ status: 'accepted' });
  });
});

test('a change that keeps the key right is taken over, and the run follows it', async () => {
  const automation = await createTriggered(store, 'edited');
  const seen = (await store.automations.get('edited')) ?? expect.fail();
  await store.automations.replace(seen, { ...seen, attempts: 5, concurrency: 1 });
  const run = newRun();
  expect(await runs.accept(automation, run, acceptLimits())).toMatchObject({ status: 'accepted' });
  expect(await runs.get(run.id)).toMatchObject({ maxAttempts: 5 });
  expect(await redis.smembers(keys.laneRunning(automation.id))).toEqual([run.id]);
});

test('an operator is limited by capacity and lane, and by no rate', async () => {
  await createTriggered(store, 'operated', { rate: { limit: 1, windowMs: 60_000 } });
  const opened = await store.automations.open('operated');
  if (opened.status !== 'authenticated') expect.fail(opened.status);
  for (let count = 0; count < 3; count += 1) {
    expect(await runs.accept(opened.automation, newRun(), acceptLimits())).toMatchObject({
      status: 'accepted',
    });
  }
  const limits = { ...acceptLimits(), maxQueuedRuns: 3 };
  expect(await runs.accept(opened.automation, newRun(), limits)).toEqual({ status: 'full' });
});

test('who asked for a run is kept with it', async () => {
  const automation = await createTriggered(store, 'called');
  const run = newRun({ caller: { address: '192.0.2.7', userAgent: 'curl/8' } });
  await runs.accept(automation, run, acceptLimits());
  expect(await runs.get(run.id)).toMatchObject({ caller: { address: '192.0.2.7', userAgent: 'curl/8' } });
});
