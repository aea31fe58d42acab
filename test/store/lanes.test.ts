import { beforeEach, describe, expect, inject, test } from 'vitest';
import type { RunAttempt } from '../../src/core/run.ts';
import { newRunId } from '../../src/store/run-id.ts';
import {
  acceptLimits,
  acceptRun,
  createTriggered,
  emptyStore,
  FAILED,
  HeldAttempts,
  holdAttempts,
  SUCCEEDED,
  startConsumer,
  takeableRuns,
  untilStatus,
} from '../support/runs.ts';
import { openStoreAt, openTestStore } from '../support/store.ts';

const store = openTestStore();
const { redis, keys, lanes } = store;

beforeEach(() => emptyStore(store));

describe('a concurrency limit', () => {
  test('keeps runs that have not ended, whatever a command says that is older than the backup in Redis', async () => {
    const automation = await createTriggered(store, 'restored', { concurrency: 1 });
    const first = await acceptRun(store, automation);
    const second = await acceptRun(store, automation);
    const owner = { automationId: automation.id, slug: 'restored' };
    for (const runId of [second, first]) await lanes.leave(owner, runId);
    expect(await lanes.holders(automation.id)).toEqual([first]);
    startConsumer(store, async () => SUCCEEDED);
    for (const runId of [first, second]) await untilStatus(store, runId, 'succeeded');
    expect(await lanes.holders(automation.id)).toEqual([]);
  });

  test.each([1, 3])('of %i is never exceeded, however many workers there are', async (concurrency) => {
    const automation = await createTriggered(store, 'limited', { concurrency });
    let executing = 0;
    let most = 0;
    const order: string[] = [];
    const execute = async ({ id }: RunAttempt) => {
      order.push(id);
      executing += 1;
      most = Math.max(most, executing);
      for (let turn = 0; turn < 3; turn += 1) await redis.ping();
      executing -= 1;
      return SUCCEEDED;
    };
    for (const workerId of ['one', 'two']) startConsumer(store, execute, { workerId });
    const accepted = await Promise.all(Array.from({ length: 40 }, () => acceptRun(store, automation)));
    for (const runId of accepted) await untilStatus(store, runId, 'succeeded');
    expect(most).toBeLessThanOrEqual(concurrency);
    // With more than one place, what was released in order can be taken by two workers at the same moment.
    expect(concurrency === 1 ? order : order.toSorted()).toEqual(accepted);
  });

  test('is used in full, in the order of acceptance', async () => {
    const automation = await createTriggered(store, 'full', { concurrency: 2 });
    const attempts = holdAttempts(store);
    const accepted: string[] = [];
    for (let count = 0; count < 4; count += 1) accepted.push(await acceptRun(store, automation));
    const [first = '', second = ''] = accepted;
    await attempts.untilStarted(first, second);
    attempts.end(second);
    await attempts.untilStarted(...accepted.slice(0, 3));
    attempts.end(first);
    await attempts.untilStarted(...accepted);
  });

  test('does not delay the runs of other automations that came later', async () => {
    const limited = await createTriggered(store, 'limited', { concurrency: 1 });
    const unlimited = await createTriggered(store, 'unlimited');
    const otherwise = await createTriggered(store, 'otherwise', { concurrency: 1 });
    const attempts = holdAttempts(store);
    const first = await acceptRun(store, limited);
    const second = await acceptRun(store, limited);
    const other = await acceptRun(store, unlimited);
    const another = await acceptRun(store, otherwise);
    await attempts.untilStarted(first, other, another);
    expect(await store.runs.get(second)).toMatchObject({ status: 'queued', attempt: 0 });
    attempts.end(first);
    await attempts.untilStarted(first, other, another, second);
  });

  test('counts a run between two attempts, whose pause tidying does not cut short', async () => {
    const automation = await createTriggered(store, 'retried', { concurrency: 1, attempts: 2 });
    const attempts = new HeldAttempts();
    const consumer = startConsumer(store, attempts.execute);
    const first = await acceptRun(store, automation);
    const second = await acceptRun(store, automation);
    await attempts.untilStarted(first);
    const closing = consumer.close(60_000);
    attempts.end(first, { ...FAILED, mayRetry: true });
    await closing;
    await lanes.tidy();
    expect(await store.runs.get(first)).toMatchObject({ status: 'retrying' });
    expect(await takeableRuns(store)).toEqual([]);

    startConsumer(store, attempts.execute);
    await attempts.untilStarted(first, first);
    attempts.end(first);
    await attempts.untilStarted(first, first, second);
  });

  test('counts a run that was returned to the queue', async () => {
    const automation = await createTriggered(store, 'returned', { concurrency: 1 });
    const attempts = new HeldAttempts();
    const consumer = startConsumer(store, attempts.execute);
    const first = await acceptRun(store, automation);
    await attempts.untilStarted(first);
    const second = await acceptRun(store, automation);
    await consumer.close(0);
    await lanes.tidy();
    expect(await takeableRuns(store)).toEqual([first]);
    expect(await store.runs.get(second)).toMatchObject({ status: 'queued' });
  });

  test.each(['succeeded', 'failed', 'timed_out', 'cancelled'] as const)(
    'does not count a run that has %s, whose place a consumer that closes has given to the next one',
    async (status) => {
      const automation = await createTriggered(store, 'ending', { concurrency: 1 });
      const attempts = new HeldAttempts();
      const consumer = startConsumer(store, attempts.execute);
      const first = await acceptRun(store, automation);
      const second = await acceptRun(store, automation);
      await attempts.untilStarted(first);
      const closing = consumer.close(60_000);
      attempts.end(first, { outcome: { status, reason: 'exit_code', message: '' }, mayRetry: false });
      await closing;
      expect(await takeableRuns(store)).toEqual([second]);
    },
  );

  test('leaves nothing behind when its runs have ended', async () => {
    const automation = await createTriggered(store, 'brief', { concurrency: 2 });
    startConsumer(store, async () => SUCCEEDED);
    for (let accepted = 0; accepted < 5; accepted += 1) await acceptRun(store, automation);
    const left = () => redis.exists(keys.lanes, keys.lane(automation.id), keys.laneRunning(automation.id));
    expect(await left()).toBeGreaterThan(0);
    await expect.poll(left, { timeout: 20_000 }).toBe(0);
  });
});

describe('tidying', () => {
  test('starts a run that was given a place before a crash, and not started', async () => {
    const automation = await createTriggered(store, 'half', { concurrency: 2 });
    const first = await acceptRun(store, automation);
    const second = await acceptRun(store, automation);
    const third = await acceptRun(store, automation);
    expect(await takeableRuns(store)).toEqual([first, second]);
    // The first one's place goes to the third, whose start is lost.
    await redis.srem(keys.laneRunning(automation.id), first);
    await redis.zrem(keys.lane(automation.id), third);
    await redis.sadd(keys.laneRunning(automation.id), third);
    await lanes.tidy();
    expect(await takeableRuns(store)).toEqual([first, second, third]);
  });

  test('starts a run that was accepted before a crash, and not given its place', async () => {
    const automation = await createTriggered(store, 'lost', { concurrency: 1 });
    const holder = await acceptRun(store, automation);
    const next = await acceptRun(store, automation);
    await redis.srem(keys.laneRunning(automation.id), holder);
    expect(await takeableRuns(store)).toEqual([holder]);
    await lanes.tidy();
    expect(await takeableRuns(store)).toEqual([holder, next]);
  });

  test('frees the place of a run that ended, and of one that is gone', async () => {
    const automation = await createTriggered(store, 'blocked', { concurrency: 2 });
    const ended = await acceptRun(store, automation);
    const consumer = startConsumer(store, async () => SUCCEEDED);
    await untilStatus(store, ended, 'succeeded');
    await consumer.close(0);
    await redis.sadd(keys.laneRunning(automation.id), ended, 'run_that_is_gone');
    const waiting = [await acceptRun(store, automation), await acceptRun(store, automation)];
    expect(await takeableRuns(store)).toEqual([]);
    await lanes.tidy();
    expect(await takeableRuns(store)).toEqual(waiting);
  });

  test('changes nothing where nothing is wrong', async () => {
    const automation = await createTriggered(store, 'fine', { concurrency: 2 });
    const attempts = holdAttempts(store, { concurrency: 1 });
    const running = await acceptRun(store, automation);
    await attempts.untilStarted(running);
    const startable = await acceptRun(store, automation);
    const waiting = await acceptRun(store, automation);
    await Promise.all([lanes.tidy(), lanes.tidy()]);
    expect(await takeableRuns(store)).toEqual([startable]);
    expect(await redis.zrange(keys.lane(automation.id), 0, '-1')).toEqual([waiting]);
  });

  test('empties the lane of an automation that was deleted, also when its slug was given again', async () => {
    const [gone, reused] = [
      await createTriggered(store, 'gone', { concurrency: 1 }),
      await createTriggered(store, 'reused', { concurrency: 1 }),
    ];
    const accepted: string[] = [];
    for (const automation of [gone, gone, gone, reused, reused]) {
      accepted.push(await acceptRun(store, automation));
    }
    for (const { slug } of [gone, reused]) await store.automations.delete(slug);
    await createTriggered(store, 'reused', { concurrency: 1 });
    await lanes.tidy();
    expect((await takeableRuns(store)).toSorted()).toEqual(accepted);
    startConsumer(store, async () => SUCCEEDED);
    await expect.poll(() => redis.exists(keys.lanes), { timeout: 20_000 }).toBe(0);
  });
});

describe('a full lane that skips', () => {
  const SKIPS = { concurrency: 1, whenBusy: 'skip' } as const;

  test('ends the run as cancelled, with its reason and its times, and nothing executes it', async () => {
    const automation = await createTriggered(store, 'skips', { ...SKIPS, onEnd: 'https://example.com/' });
    const attempts = holdAttempts(store);
    const first = await acceptRun(store, automation);
    await attempts.untilStarted(first);
    const skipped = await acceptRun(store, automation);
    const run = await store.runs.get(skipped);
    expect(run).toMatchObject({
      status: 'cancelled',
      attempt: 0,
      acceptedAt: expect.any(Date),
      endedAt: expect.any(Date),
      outcome: {
        status: 'cancelled',
        reason: 'automation_busy',
        message: 'Skipped: as many runs were under way as --concurrency 1 allows, and --when-busy is skip.',
      },
    });
    expect(run).not.toHaveProperty('startedAt');
    expect(Number(run?.endedAt)).toBeGreaterThanOrEqual(Number(run?.acceptedAt));
    const cancelled = await store.runs.list({ automation: 'skips', statuses: ['cancelled'], limit: 10 });
    expect(cancelled.map(({ id }) => id)).toEqual([skipped]);
    expect(await store.index.countOpen(['skips'])).toEqual([1]);
    expect(await store.runs.depth()).toMatchObject({ queued: 0, retrying: 0 });
    expect(await store.runs.jobCounts()).toMatchObject({ active: 1, failed: 1, waiting: 0, delayed: 0 });
    // Every run that ends has its event.
    expect(await store.events.queues()).toMatchObject([{ slug: 'skips', receiver: 'onEnd', waiting: 1 }]);
    attempts.end(first);
    await untilStatus(store, first, 'succeeded');
    const third = await acceptRun(store, automation);
    await attempts.untilStarted(first, third);
    attempts.end(third);
    await untilStatus(store, third, 'succeeded');
  });

  test('executes exactly as many as have a place, over all API processes', async () => {
    const automation = await createTriggered(store, 'many', { concurrency: 3, whenBusy: 'skip' });
    const attempts = holdAttempts(store, { workerId: 'one' });
    startConsumer(store, attempts.execute, { workerId: 'two' });
    const stores = [store, openOther(), openOther()];
    const accepting = Array.from({ length: 60 }, (_, index) =>
      acceptRun(stores[index % 3] ?? store, automation),
    );
    const runs = await Promise.all((await Promise.all(accepting)).map((runId) => store.runs.get(runId)));
    expect(runs.filter((run) => run?.status === 'cancelled')).toHaveLength(57);
    await expect.poll(() => attempts.started.length).toBe(3);
    expect(await redis.scard(keys.laneRunning(automation.id))).toBe(3);
    for (const { id } of attempts.started) {
      attempts.end(id);
      await untilStatus(store, id, 'succeeded');
    }
  });

  test('does not count a place that a run has left without giving it back', async () => {
    const automation = await createTriggered(store, 'left', SKIPS);
    const ended = await acceptRun(store, automation);
    const queue = await store.queue.open();
    // What a worker leaves that died between the end of a run and the tidying of its lane.
    await redis.lrem(queue.toKey('wait'), 0, ended);
    await redis.hset(queue.toKey(ended), 'finishedOn', Date.now());
    expect(await takeableRuns(store)).toEqual([]);
    const next = await acceptRun(store, automation);
    expect(await takeableRuns(store)).toEqual([next]);
    expect(await redis.smembers(keys.laneRunning(automation.id))).toEqual([next]);
  });

  test('is full while its run waits for its next attempt', async () => {
    const automation = await createTriggered(store, 'retries', { ...SKIPS, attempts: 2 });
    startConsumer(store, async () => ({ ...FAILED, mayRetry: true }));
    const runId = await acceptRun(store, automation);
    await untilStatus(store, runId, 'retrying');
    const skipped = await acceptRun(store, automation);
    expect((await store.runs.get(skipped))?.status).toBe('cancelled');
    await untilStatus(store, runId, 'failed');
  });

  test('lets the runs go first that waited before it skipped', async () => {
    const queueing = await createTriggered(store, 'changed', { concurrency: 1 });
    const [first, second] = [await acceptRun(store, queueing), await acceptRun(store, queueing)];
    const seen = await store.automations.get('changed');
    if (!seen) throw new Error('there is no automation');
    await store.automations.replace(seen, { ...seen, whenBusy: 'skip' });
    const skipped = await acceptRun(store, queueing);
    expect((await store.runs.get(skipped))?.status).toBe('cancelled');
    startConsumer(store, async () => SUCCEEDED);
    await untilStatus(store, first, 'succeeded');
    await untilStatus(store, second, 'succeeded');
  });

  test('tells a repeated request that its run was skipped', async () => {
    const automation = await createTriggered(store, 'repeated', SKIPS);
    await acceptRun(store, automation);
    const accept = () => {
      const run = { id: newRunId(), payload: '{}', requestId: 'test-request', idempotencyKey: 'k' };
      return store.runs.accept(automation, run, acceptLimits());
    };
    const first = await accept();
    expect(first).toMatchObject({ status: 'accepted' });
    expect(await accept()).toMatchObject({ status: 'replayed', runStatus: 'cancelled' });
    // Also when the run is no longer kept.
    const queue = await store.queue.open();
    await queue.remove('runId' in first ? first.runId : '');
    expect(await accept()).toMatchObject({ status: 'replayed', runStatus: 'cancelled' });
  });
});

/** The store of another process. */
function openOther() {
  return openStoreAt(inject('redisUrl'), 'patient', store.prefix);
}
