import { expect, inject, onTestFinished, test } from 'vitest';
import { connect } from '../../src/store/connect.ts';
import { createStore } from '../../src/store/store.ts';
import { acceptRun, createTriggered } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const one = openTestStore();
const other = openTestStore();

test('stores under different prefixes share nothing', async () => {
  const automation = await createTriggered(one, 'deploy', { concurrency: 1 });
  const runId = await acceptRun(one, automation);
  await one.workers.beat('worker');
  expect(await other.automations.list()).toEqual([]);
  expect(await other.runs.get(runId)).toBeUndefined();
  expect(await other.runs.list({ limit: 1 })).toEqual([]);
  expect(await other.runs.countQueued()).toBe(0);
  expect(await other.workers.probe()).toEqual({ workersAlive: 0 });
});

test('stores under the same prefix see the same', async () => {
  const twin = openTwin();
  const automation = await createTriggered(one, 'shared');
  const runId = await acceptRun(one, automation);
  expect(await twin.automations.get('shared')).toEqual(await one.automations.get('shared'));
  expect(await twin.runs.get(runId)).toEqual(await one.runs.get(runId));
});

test('closing ends the connection, once and again', async () => {
  const store = openTwin();
  await store.runs.countQueued();
  await store.close();
  await store.close();
  await expect(store.redis.ping()).rejects.toThrow('Connection is closed');
});

function openTwin() {
  const redis = connect(inject('redisUrl'), 'patient', () => undefined);
  const store = createStore(redis, one.prefix, () => undefined);
  onTestFinished(() => store.close());
  return store;
}
