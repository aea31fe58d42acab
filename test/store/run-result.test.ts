import { expect, test } from 'vitest';
import { acceptRun, createTriggered, SUCCEEDED, startConsumer, untilStatus } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();
const TEXT = '{ "id": 12345678901234567890, "id": 2 }';
const withResult = {
  ...SUCCEEDED,
  outcome: { ...SUCCEEDED.outcome, resultBytes: TEXT.length },
  result: TEXT,
};

async function resultOf(runId: string): Promise<string | undefined> {
  const run = await store.runs.get(runId);
  return run && store.results.read(run);
}

test('a run that has ended has its result, byte for byte, and its outcome says how large that is', async () => {
  const runId = await acceptRun(store, await createTriggered(store, 'tells'));
  startConsumer(store, async () => withResult);
  await untilStatus(store, runId, 'succeeded');
  expect(await resultOf(runId)).toBe(TEXT);
  expect((await store.runs.get(runId))?.outcome).toEqual(withResult.outcome);
});

test('a run without a result has none', async () => {
  const runId = await acceptRun(store, await createTriggered(store, 'silent'));
  startConsumer(store, async () => SUCCEEDED);
  await untilStatus(store, runId, 'succeeded');
  expect(await resultOf(runId)).toBeUndefined();
});

test('what an attempt left whose worker then died is not the result of the run', async () => {
  const runId = await acceptRun(store, await createTriggered(store, 'again'));
  await store.redis.set(store.keys.result(runId), '{"by":"the dead"}');
  startConsumer(store, async () => SUCCEEDED);
  await untilStatus(store, runId, 'succeeded');
  expect(await resultOf(runId)).toBeUndefined();
});

test('a worker that has lost the run changes nothing', async () => {
  const runId = await acceptRun(store, await createTriggered(store, 'lost'));
  await store.results.write(runId, 'a lock of the past', TEXT, 60_000);
  expect(await store.redis.exists(store.keys.result(runId))).toBe(0);
});
