import { afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { TriggeredAutomation } from '../../src/store/automations.ts';
import { connect, untilReady } from '../../src/store/connect.ts';
import { createKeys } from '../../src/store/keys.ts';
import { QueueOpener, QueueUnavailableError } from '../../src/store/queue.ts';
import type { Store } from '../../src/store/store.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { acceptRun, createTriggered } from '../support/runs.ts';
import { connectStore, newPrefix, openStoreAt } from '../support/store.ts';

/** In Redis from the beginning, whether it is there or not. */
let automation: TriggeredAutomation;
let limited: TriggeredAutomation;
const PREFIX = newPrefix();

/** Accepts runs until Redis takes one, and returns its id. */
async function untilAccepted(store: Store): Promise<string> {
  const runIds: string[] = [];
  const accept = async () => {
    runIds.push(await acceptRun(store, automation));
  };
  await expect
    .poll(() => accept().then(() => 'accepted', String), { timeout: 20_000, interval: 20 })
    .toBe('accepted');
  return runIds.join();
}

const redis = await openPrivateRedis();

beforeAll(async () => {
  await redis.start();
  const store = connectStore(redis.url, 'patient', PREFIX);
  automation = await createTriggered(store, 'any');
  limited = await createTriggered(store, 'limited', { concurrency: 1 });
  await store.close();
  await redis.stop();
});

afterEach(() => redis.stop());

describe('over a connection that fails fast', () => {
  test('runs are refused at once while Redis is absent, and taken when it is there', async () => {
    const store = openStoreAt(redis.url, 'fail-fast', PREFIX);
    await expect(acceptRun(store, automation)).rejects.toThrow(QueueUnavailableError);
    await expect(acceptRun(store, limited)).rejects.toThrow(QueueUnavailableError);
    await expect(store.runs.countQueued()).rejects.toThrow(QueueUnavailableError);

    await redis.start();
    const runId = await untilAccepted(store);
    expect(await store.runs.get(runId)).toMatchObject({ status: 'queued' });
  });

  test('runs are refused after a crash of Redis, taken when it is back, and none that was accepted is lost', async () => {
    await redis.start();
    const store = openStoreAt(redis.url, 'fail-fast', PREFIX);
    const before = await untilAccepted(store);

    await redis.kill();
    await expect.poll(() => store.redis.status).not.toBe('ready');
    await expect(acceptRun(store, automation)).rejects.toThrow(QueueUnavailableError);

    await redis.start();
    const after = await untilAccepted(store);
    const listed = await store.runs.list({ automation: automation.slug, limit: 2 });
    expect(listed.map(({ id }) => id)).toEqual([after, before]);
  });
});

test('a queue that could not be made because Redis died meanwhile is made later', async () => {
  await redis.start();
  const store = openStoreAt(redis.url, 'fail-fast', PREFIX);
  await untilReady(store.redis, 20_000);
  redis.freeze();
  const refused = expect(acceptRun(store, automation)).rejects.toThrow();
  await redis.kill();
  await refused;
  await redis.start();
  await untilAccepted(store);
});

test('over a patient connection, a run waits until Redis is there', async () => {
  const store = openStoreAt(redis.url, 'patient', PREFIX);
  const accepting = acceptRun(store, automation);
  await redis.start();
  expect(await store.runs.get(await accepting)).toMatchObject({ status: 'queued' });
});

test('over a connection for one shot, a run is refused, and the failure is reported', async () => {
  const errors: Error[] = [];
  const connection = connect(redis.url, 'one-shot', () => undefined);
  const queue = new QueueOpener(connection, createKeys('any'), (error) => errors.push(error));
  await expect(queue.open()).rejects.toThrow();
  expect(errors).toHaveLength(1);
});

test('the queue is made once, however often it is asked for', async () => {
  await redis.start();
  const connection = connect(redis.url, 'patient', () => undefined);
  onTestFinished(() => connection.disconnect());
  const queue = new QueueOpener(connection, createKeys('any'), () => undefined);
  const [one, other] = await Promise.all([queue.open(), queue.open()]);
  expect(one).toBe(other);
  expect(await queue.open()).toBe(one);
});
