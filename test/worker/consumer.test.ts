import type { Redis } from 'ioredis';
import { beforeEach, describe, expect, test } from 'vitest';
import type { RunOutcome } from '../../src/core/run.ts';
import { newRunId } from '../../src/store/run-id.ts';
import { SHUTTING_DOWN } from '../../src/worker/lease.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import {
  acceptLimits,
  acceptRun,
  createTriggered,
  emptyStore,
  FAILED,
  HeldAttempts,
  SUCCEEDED,
  startConsumer,
  takeableRuns,
  untilStatus,
} from '../support/runs.ts';
import { openStoreAt, openTestStore } from '../support/store.ts';

const privateRedis = await openPrivateRedis();
const store = openTestStore();

beforeEach(() => emptyStore(store));

describe('an attempt', () => {
  test('is handed everything about its run', async () => {
    const automation = await createTriggered(store, 'told');
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute);
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const runId = newRunId();
    const run = {
      id: runId,
      payload: '{"a":1}',
      requestId: 'request-1',
      traceparent,
      tracestate: 'rojo=1',
    };
    await store.runs.accept(automation, run, acceptLimits());
    await attempts.untilStarted(runId);
    const accepted = await store.runs.get(runId);
    expect(attempts.started[0]).toEqual({
      id: runId,
      automation: 'told',
      automationId: automation.id,
      attempt: 1,
      isLast: true,
      acceptedAt: accepted?.acceptedAt,
      requestId: 'request-1',
      traceparent,
      tracestate: 'rojo=1',
      payload: Buffer.from('{"a":1}'),
      workersLost: 0,
    });
  });

  test.each([
    ['big numbers', '{"id":123456789012345678901234567890,"tiny":1e-400,"one":1.0}'],
    ['the order and repetition of keys', '{"b":1,"a":2,"b":3,"__proto__":{"x":1},"constructor":null}'],
    ['white space', ' {\r\n\t"a" : 1 }\n'],
    ['characters beyond ASCII', '{"text":"ü€📊\u2028\ufeff\u0000","escaped":"\\ud83d\\u0000"}'],
    ['200 KB', `{"text":"${'x€'.repeat(50_000)}"}`],
  ])('is handed the payload byte for byte: %s', async (_, payload) => {
    const automation = await createTriggered(store, 'exact');
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute);
    await attempts.untilStarted(await acceptRun(store, automation, payload));
    expect(attempts.started[0]?.payload.equals(Buffer.from(payload))).toBe(true);
  });
});

describe('a run', () => {
  test('that succeeds is kept with how it ended, when and where', async () => {
    const automation = await createTriggered(store, 'good', { attempts: 3 });
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute, { workerId: 'worker-7' });
    const runId = await acceptRun(store, automation);
    await attempts.untilStarted(runId);
    const running = await store.runs.get(runId);
    expect(running).toMatchObject({ status: 'running', attempt: 1, worker: 'worker-7' });
    expect(running).not.toHaveProperty('outcome');

    attempts.end(runId);
    await untilStatus(store, runId, 'succeeded');
    const run = await store.runs.get(runId);
    expect(run).toEqual({
      ...running,
      status: 'succeeded',
      endedAt: expect.any(Date),
      outcome: SUCCEEDED.outcome,
    });
    const times = [run?.acceptedAt, run?.startedAt, run?.endedAt].map(Number);
    expect([...times].sort((left, right) => left - right)).toEqual(times);
  });

  test.each([
    { status: 'failed', reason: 'exit_code', message: 'exit code 3', exitCode: 3 },
    { status: 'failed', reason: 'signal', message: 'killed by SIGSEGV', signal: 'SIGSEGV' },
    { status: 'timed_out', reason: 'timeout', message: 'over 10 s' },
    { status: 'cancelled', reason: 'automation_disabled', message: 'disabled "meanwhile"\n' },
  ] satisfies RunOutcome[])(
    'that must not be tried again ends with its outcome: $reason',
    async (outcome) => {
      const automation = await createTriggered(store, 'bad', { attempts: 3 });
      startConsumer(store, async () => ({ outcome, mayRetry: false }));
      const runId = await acceptRun(store, automation);
      await untilStatus(store, runId, outcome.status);
      expect(await store.runs.get(runId)).toMatchObject({ attempt: 1, outcome, endedAt: expect.any(Date) });
    },
  );

  test('that fails is tried again, and can still succeed', async () => {
    const automation = await createTriggered(store, 'shaky', { attempts: 3 });
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute);
    const runId = await acceptRun(store, automation);
    await attempts.untilStarted(runId);
    attempts.end(runId, { ...FAILED, mayRetry: true });
    await untilStatus(store, runId, 'retrying');
    const retrying = await store.runs.get(runId);
    expect(retrying).toMatchObject({ attempt: 1, maxAttempts: 3, outcome: FAILED.outcome });
    expect(retrying).not.toHaveProperty('endedAt');

    await attempts.untilStarted(runId, runId);
    expect(attempts.started[1]).toMatchObject({ attempt: 2, workersLost: 0 });
    const runningAgain = await store.runs.get(runId);
    expect(runningAgain).toMatchObject({ status: 'running', attempt: 2 });
    expect(runningAgain).not.toHaveProperty('outcome');
    attempts.end(runId);
    await untilStatus(store, runId, 'succeeded');
    expect(await store.runs.get(runId)).toMatchObject({ attempt: 2, outcome: SUCCEEDED.outcome });
  });

  test('that fails on its last attempt has failed', async () => {
    const automation = await createTriggered(store, 'hopeless', { attempts: 2 });
    const attempts: number[] = [];
    startConsumer(store, async ({ attempt }) => {
      attempts.push(attempt);
      return { ...FAILED, mayRetry: true };
    });
    const runId = await acceptRun(store, automation);
    await untilStatus(store, runId, 'failed');
    expect(attempts).toEqual([1, 2]);
    expect(await store.runs.get(runId)).toMatchObject({ attempt: 2, outcome: FAILED.outcome });
  });
});

describe('consumers', () => {
  test('share the runs, so that each is executed once', async () => {
    const automation = await createTriggered(store, 'shared');
    const executed: string[] = [];
    const takers = new Set<string>();
    for (const workerId of ['one', 'two', 'three']) {
      const execute = async ({ id }: { id: string }) => {
        executed.push(id);
        takers.add(workerId);
        await store.redis.ping();
        return SUCCEEDED;
      };
      startConsumer(store, execute, { workerId, concurrency: 2 });
    }
    const accepted = await Promise.all(Array.from({ length: 100 }, () => acceptRun(store, automation)));
    for (const runId of accepted) await untilStatus(store, runId, 'succeeded');
    expect(executed.sort()).toEqual(accepted);
    expect(takers.size).toBeGreaterThan(1);
  });

  test('execute as many runs at once as they are told, in the order of acceptance', async () => {
    const automation = await createTriggered(store, 'queued');
    const attempts = new HeldAttempts();
    startConsumer(store, attempts.execute, { concurrency: 2 });
    const [first = '', second = '', third = ''] = [
      await acceptRun(store, automation),
      await acceptRun(store, automation),
      await acceptRun(store, automation),
    ];
    await attempts.untilStarted(first, second);
    expect(await takeableRuns(store)).toEqual([third]);
    attempts.end(first);
    await attempts.untilStarted(first, second, third);
  });
});

describe('close', () => {
  test('waits for the runs in progress, and takes no others', async () => {
    const automation = await createTriggered(store, 'finishing');
    const attempts = new HeldAttempts();
    const consumer = startConsumer(store, attempts.execute, { concurrency: 1 });
    const running = await acceptRun(store, automation);
    await attempts.untilStarted(running);
    const waiting = await acceptRun(store, automation);

    const closing = consumer.close(60_000);
    attempts.end(running);
    await closing;
    expect(await store.runs.get(running)).toMatchObject({ status: 'succeeded' });
    expect(await store.runs.get(waiting)).toMatchObject({ status: 'queued', attempt: 0 });
    expect(attempts.startedIds).toEqual([running]);
  });

  test('returns runs that go on after the grace to the head of the queue, for another consumer', async () => {
    const automation = await createTriggered(store, 'interrupted');
    const attempts = new HeldAttempts();
    let reason: unknown;
    const consumer = startConsumer(
      store,
      (run, signal) => {
        signal.addEventListener('abort', () => {
          reason = signal.reason;
        });
        return attempts.execute(run, signal);
      },
      { concurrency: 1 },
    );
    const running = await acceptRun(store, automation);
    await attempts.untilStarted(running);
    const waiting = await acceptRun(store, automation);
    await consumer.close(0);
    expect(reason).toBe(SHUTTING_DOWN);
    expect(await store.runs.get(running)).toMatchObject({ status: 'queued' });
    expect(await takeableRuns(store)).toEqual([running, waiting]);

    const others = new HeldAttempts();
    startConsumer(store, others.execute, { concurrency: 1 });
    await others.untilStarted(running);
    expect(others.started[0]).toMatchObject({ attempt: 2, workersLost: 0 });
    others.end(running);
    await untilStatus(store, running, 'succeeded');
    await others.untilStarted(running, waiting);
  });

  test('returns a run that was being taken when it was called, without executing it', async () => {
    const automation = await createTriggered(store, 'taken');
    const attempts = new HeldAttempts();
    const consumer = startConsumer(store, attempts.execute, { concurrency: 1 });
    const first = await acceptRun(store, automation);
    await attempts.untilStarted(first);
    const second = await acceptRun(store, automation);
    const third = await acceptRun(store, automation);
    attempts.end(first);
    // After this turn the end of the first is on its way to Redis, which answers with the second.
    await new Promise(setImmediate);
    await consumer.close(0);
    expect(attempts.startedIds).toEqual([first]);
    expect(await takeableRuns(store)).toEqual([second, third]);
    const returned = await store.runs.get(second);
    expect(returned).toMatchObject({ status: 'queued', attempt: 0 });
    expect(returned).not.toHaveProperty('startedAt');
  });
});

test('runs are taken again, without a restart, when Redis comes back', async () => {
  await privateRedis.start();
  const other = openStoreAt(privateRedis.url, 'patient');
  const automation = await createTriggered(other, 'steadfast');
  const attempts = new HeldAttempts();
  startConsumer(other, attempts.execute, { onError: () => undefined });
  const before = await acceptRun(other, automation);
  await attempts.untilStarted(before);

  await privateRedis.kill();
  attempts.end(before);
  await privateRedis.start();
  await untilStatus(other, before, 'succeeded');
  const after = await acceptRun(other, automation);
  await attempts.untilStarted(before, after);
});

test('an answer of Redis that comes late, with a run, is no reason to count that run as lost', async () => {
  await privateRedis.stop();
  await privateRedis.start();
  const other = openStoreAt(privateRedis.url, 'patient');
  const automation = await createTriggered(other, 'late');
  const attempts = new HeldAttempts();
  const timing = { lockMs: 5000, stalledCheckMs: 60_000, renewMs: 200, leaseMs: 500 };
  startConsumer(other, attempts.execute, { timing, concurrency: 1, onError: () => undefined });
  const first = await acceptRun(other, automation);
  const second = await acceptRun(other, automation);
  await attempts.untilStarted(first);
  let asked = false;
  const redis = other.redis as Redis;
  const send = redis.sendCommand.bind(redis);
  redis.sendCommand = (command, stream) => {
    asked ||= command.args.some((argument) => String(argument).endsWith(':marker'));
    return send(command, stream);
  };
  privateRedis.freeze();
  // The first is lost, so that the worker asks for another one; by the time it gets it, a lease would be over.
  await expect.poll(() => asked, { timeout: 20_000 }).toBe(true);
  const askedAt = Date.now();
  await expect.poll(() => Date.now() - askedAt).toBeGreaterThan(2 * timing.leaseMs);
  privateRedis.thaw();
  await attempts.untilStarted(first, second);
  expect(attempts.started[1]).toMatchObject({ attempt: 1, workersLost: 0 });
  attempts.end(second);
  await untilStatus(other, second, 'succeeded');
});
