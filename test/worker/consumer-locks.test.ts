import { beforeEach, expect, test } from 'vitest';
import type { RunConsumerOptions } from '../../src/worker/consumer.ts';
import { LOCK_TIMING } from '../../src/worker/lease.ts';
import {
  acceptRun,
  createTriggered,
  emptyStore,
  HeldAttempts,
  startConsumer,
  untilStatus,
} from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();

beforeEach(() => emptyStore(store));

/** What Redis holds once a worker was unable to renew the lock of a run for as long as the lock lasts. */
async function loseLock(runId: string): Promise<void> {
  const queue = `${store.keys.queuePrefix}:runs`;
  await store.redis.del(`${queue}:${runId}:lock`);
  await store.redis.sadd(`${queue}:stalled`, runId);
}

/** Holds attempts like {@link HeldAttempts}, and writes down what happens to them. */
function observed(attempts: HeldAttempts, events: string[]): RunConsumerOptions['execute'] {
  return async (run, signal) => {
    events.push(`attempt ${run.attempt} starts, workers lost: ${run.workersLost}`);
    const result = await attempts.execute(run, signal);
    events.push(`attempt ${run.attempt} ends: ${result === 'interrupted' ? signal.reason : 'by itself'}`);
    return result;
  };
}

/** Lost locks are looked for before the worker itself notices, which it does at the next renewal. */
const timing = { ...LOCK_TIMING, stalledCheckMs: 300, renewMs: 2000 };

test('a run whose lock was lost is handed to another worker, and the first one is told to end it', async () => {
  const automation = await createTriggered(store, 'handed');
  const [first, second] = [new HeldAttempts(), new HeldAttempts()];
  const events: string[] = [];
  const errors = new Set<string>();
  const hold = observed(first, events);
  startConsumer(
    store,
    async (run, signal, ...conditions) => {
      const result = await hold(run, signal, ...conditions);
      // Until it is free, the first worker cannot take the run again.
      await second.untilStarted(run.id);
      return result;
    },
    { timing, workerId: 'first', concurrency: 1, onError: ({ message }) => errors.add(message) },
  );
  const runId = await acceptRun(store, automation);
  await first.untilStarted(runId);
  await loseLock(runId);
  startConsumer(store, second.execute, { timing, workerId: 'second' });

  await second.untilStarted(runId);
  expect(second.started[0]).toMatchObject({ workersLost: 1 });
  await expect.poll(() => events, { timeout: 20_000 }).toContain('attempt 1 ends: lock lost');
  expect(await store.runs.get(runId)).toMatchObject({ status: 'running', worker: 'second' });
  second.end(runId);
  await untilStatus(store, runId, 'succeeded');
  expect([...errors]).toEqual([`could not renew lock for job ${runId}`]);
});

test('a worker that takes a run again which it lost ends its earlier attempt before the next one', async () => {
  const automation = await createTriggered(store, 'retaken');
  const attempts = new HeldAttempts();
  const events: string[] = [];
  startConsumer(store, observed(attempts, events), { timing, onError: () => undefined });
  const runId = await acceptRun(store, automation);
  await attempts.untilStarted(runId);
  await loseLock(runId);
  await attempts.untilStarted(runId, runId);
  expect(events).toEqual([
    'attempt 1 starts, workers lost: 0',
    'attempt 1 ends: lock lost',
    expect.stringMatching(/^attempt \d starts, workers lost: 1$/),
  ]);
  attempts.end(runId);
  await untilStatus(store, runId, 'succeeded');
});
