import { Webhook } from 'standardwebhooks';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { eventBody, eventIdOf } from '../../src/core/run-event.ts';
import { createLogger } from '../../src/logger.ts';
import { MAX_WAITING_EVENTS } from '../../src/store/event-outbox.ts';
import { EVENT_RETRY_MS, type EventSender, sendEvents } from '../../src/worker/event-sender.ts';
import { runOrc } from '../support/orc.ts';
import { acceptRun, createTriggered, emptyStore, untilStatus } from '../support/runs.ts';
import { definition, openTestStore } from '../support/store.ts';
import { answerStatus, type Received, type Receiver, startReceiver } from './receiver.ts';
import { eventually } from './workbench.ts';

const store = openTestStore();
const { events, keys, redis } = store;

beforeEach(() => emptyStore(store));

/** Sends events as a worker does, until the test has ended. */
function startSender(deny?: 'private'): EventSender {
  const errors: Error[] = [];
  const sender = sendEvents({
    events,
    config: { version: '1.2.3-test', ...(deny && { DELIVERY_DENY: deny }) },
    logger: createLogger('silent', 'worker'),
    onError: (error) => errors.push(error),
  });
  onTestFinished(async () => {
    await sender.close(0);
    expect(errors).toEqual([]);
  });
  return sender;
}

/** Accepts a run and ends it by cancelling it. Returns its id. */
async function cancelledRun(slug: string, changes: Partial<AutomationDefinition>): Promise<string> {
  const automation = await createTriggered(store, slug, changes);
  const runId = await acceptRun(store, automation);
  await store.runs.cancel(runId);
  return runId;
}

async function deliveriesOf(runId: string) {
  const run = (await store.runs.get(runId)) ?? expect.fail(`${runId} is gone`);
  return events.deliveriesOf(run);
}

/** Makes what waits for a pause due. */
async function skipPauses(slug: string, receiver = 'onEnd'): Promise<void> {
  const queue = keys.eventQueue(slug, receiver);
  for (const id of await redis.zrange(queue, 0, '-1')) await redis.zadd(queue, 'XX', 1, id);
  await redis.zadd(keys.eventQueues, 'XX', 1, `${slug}:${receiver}`);
}

async function failingOf() {
  return (await events.queues()).map(({ failing }) => failing);
}

async function dropCounts() {
  return [...(await events.drops())].map(([slug, { count }]) => [slug, count]);
}

function idsOf({ requests }: Receiver): (string | undefined)[] {
  return requests.map(({ headers }) => headers['webhook-id']?.toString());
}

test('the URL gets one signed event of a run that has ended, and orc says when it was delivered', async () => {
  const receiver = await startReceiver(answerStatus(204));
  startSender();
  const runId = await cancelledRun('told', { onEnd: `${receiver.url}/end?a=1` });
  await eventually(() => deliveriesOf(runId)).toEqual([
    { receiver: 'onEnd', status: 'delivered', at: expect.any(Date), tries: 1 },
  ]);
  expect(receiver.requests).toHaveLength(1);
  const [{ method, url, headers, body }] = receiver.requests as [Received];
  expect([method, url]).toEqual(['POST', '/end?a=1']);
  expect(headers['user-agent']).toBe('orc/1.2.3-test');
  expect(headers['webhook-id']).toBe(`${runId.replace('run_', 'evt_')}_cancelled`);
  const run = (await store.runs.get(runId)) ?? expect.fail();
  const { signingSecret = '' } = (await store.automations.get('told')) ?? {};
  const event = new Webhook(signingSecret).verify(body, headers as Record<string, string>);
  expect(event).toEqual({
    type: 'run.cancelled',
    timestamp: run.endedAt?.toISOString(),
    data: {
      run: {
        runId,
        status: 'cancelled',
        createdAt: run.acceptedAt.toISOString(),
        endedAt: run.endedAt?.toISOString(),
        attempts: 0,
        maxAttempts: 1,
        requestId: 'test-request',
      },
      automation: { slug: 'told' },
      outcome: run.outcome,
    },
  });
  expect(await events.queues()).toEqual([]);
});

test('runs show and status say what became of an event', async () => {
  const orc = async (...args: string[]) => (await runOrc(args, { env: store.env })).stdout;
  const receiver = await startReceiver((response, _, count) =>
    response.writeHead(count === 1 ? 500 : 410).end(),
  );
  const runId = await cancelledRun('said', { onEnd: receiver.url });
  expect(await orc('runs', 'show', runId)).toMatch(/^event +onEnd: waits to be sent$/m);
  startSender();
  await eventually(failingOf).toMatchObject([{ turns: 1, lastError: 'The receiver answered 500.' }]);
  const waiting = /^event +onEnd: waits after 1 try until \S+Z\. The receiver answered 500\.$/m;
  expect(await orc('runs', 'show', runId)).toMatch(waiting);
  expect(await orc('status')).toMatch(
    /^events +1 wait; cannot be delivered: said \(onEnd\); why: orc doctor$/m,
  );
  await skipPauses('said');
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ status: 'dropped' }]);
  expect(await orc('runs', 'show', runId)).toMatch(
    /^event +onEnd: dropped at \S+, 2 tries\. The receiver answered 410\.$/m,
  );
  expect(JSON.parse(await orc('runs', 'show', runId, '--json')).events).toMatchObject([{ tries: 2 }]);
  expect(await orc('status')).toMatch(/^events +0 wait; 1 dropped: said$/m);
  const { events: told } = JSON.parse(await orc('status', '--json'));
  expect(told).toMatchObject({ waiting: 0, dropped: 1, droppedBy: [{ slug: 'said', dropped: 1 }] });
});

test('while two secrets are valid, an event is signed with both', async () => {
  const receiver = await startReceiver(answerStatus(204));
  const runId = await cancelledRun('resigned', { onEnd: receiver.url });
  const before = (await store.automations.get('resigned'))?.signingSecret ?? '';
  const rotated = await store.automations.rotateSecret('resigned', 60_000);
  if (rotated.status !== 'rotated') throw new Error(rotated.status);
  startSender();
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ status: 'delivered' }]);
  const [{ headers, body }] = receiver.requests as [Received];
  for (const secret of [before, rotated.signingSecret]) {
    expect(new Webhook(secret).verify(body, headers as Record<string, string>)).toBeTruthy();
  }
});

test('an event that was not delivered is sent again with the same id and the same bytes', async () => {
  const receiver = await startReceiver((response, _, count) =>
    response.writeHead(count === 1 ? 500 : 200).end(),
  );
  startSender();
  const runId = await cancelledRun('again', { onEnd: receiver.url });
  await eventually(() => deliveriesOf(runId)).toMatchObject([
    { status: 'waiting', tries: 1, lastError: 'The receiver answered 500.', nextTryAt: expect.any(Date) },
  ]);
  await skipPauses('again');
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ status: 'delivered', tries: 2 }]);
  const [first, second] = receiver.requests as [Received, Received];
  expect(second.headers['webhook-id']).toBe(first.headers['webhook-id']);
  expect(second.body.equals(first.body)).toBe(true);
});

test.each([
  [307, 'waiting', 'The receiver answered 307.'],
  [400, 'waiting', 'The receiver answered 400.'],
  [429, 'waiting', 'The receiver answered 429.'],
  [410, 'dropped', 'The receiver answered 410.'],
])('after the answer %i, the event is %s', async (status, expected, lastError) => {
  const elsewhere = await startReceiver(answerStatus(200));
  const receiver = await startReceiver((response) =>
    response.writeHead(status, { location: elsewhere.url }).end(),
  );
  startSender();
  const runId = await cancelledRun('judged', { onEnd: receiver.url });
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ status: expected, tries: 1, lastError }]);
  expect(elsewhere.requests).toEqual([]);
  expect(await dropCounts()).toEqual(expected === 'dropped' ? [['judged', 1]] : []);
});

test.each([
  ['seconds', '120', 110_000, 121_000],
  ['a date', new Date(Date.now() + 300_000).toUTCString(), 200_000, 301_000],
  ['more than is waited for', '999999', 3_590_000, 3_600_001],
])('Retry-After with %s holds the queue for so long', async (_, value, atLeast, atMost) => {
  const receiver = await startReceiver((response) => response.writeHead(503, { 'retry-after': value }).end());
  startSender();
  const startedAt = Date.now();
  const runId = await cancelledRun('asked', { onEnd: receiver.url });
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ tries: 1 }]);
  await eventually(
    async () => Number(await redis.zscore(keys.eventQueues, 'asked:onEnd')) > startedAt + atLeast,
  ).toBe(true);
  const dueAt = Number(await redis.zscore(keys.eventQueues, 'asked:onEnd'));
  expect(dueAt).toBeLessThan(Date.now() + atMost);
});

test('an event is not sent to an address that nothing is delivered to', async () => {
  const receiver = await startReceiver(answerStatus(200));
  startSender('private');
  const runId = await cancelledRun('denied', { onEnd: receiver.url });
  await eventually(() => deliveriesOf(runId)).toMatchObject([
    { status: 'waiting', lastError: 'Nothing was sent: 127.0.0.1 is a private address (DELIVERY_DENY).' },
  ]);
  expect(receiver.requests).toEqual([]);
});

test('a receiver that hangs holds up neither another automation nor the other URL of its own', async () => {
  const hanging = await startReceiver(() => undefined);
  const well = await startReceiver(answerStatus(200));
  startSender();
  const automation = await createTriggered(store, 'hangs', { onEnd: hanging.url, onFailure: well.url });
  for (let count = 0; count < 20; count += 1) await endRun(automation.id, 'hangs', 'failed');
  const other = await cancelledRun('well', { onEnd: `${well.url}/other` });
  await eventually(() => deliveriesOf(other)).toMatchObject([{ status: 'delivered' }]);
  await eventually(() => well.requests.length).toBe(21);
  expect(hanging.requests.length).toBeLessThan(20);
});

test('while nothing can be delivered to a URL, one event tries it at a time; then all are delivered', async () => {
  let isDown = true;
  const receiver = await startReceiver((response) => response.writeHead(isDown ? 503 : 200).end());
  const automation = await createTriggered(store, 'down', { onEnd: receiver.url });
  for (let count = 0; count < 30; count += 1) await endRun(automation.id, 'down', 'succeeded');
  startSender();
  await eventually(failingOf).toMatchObject([{ turns: 1 }]);
  const [since] = (await failingOf()).map((failing) => failing?.since);
  const first = receiver.requests.length;
  expect(first).toBeLessThan(30);
  await skipPauses('down');
  await eventually(failingOf).toMatchObject([{ turns: 2, since }]);
  expect(receiver.requests).toHaveLength(first + 1);
  isDown = false;
  await skipPauses('down');
  await eventually(() => events.queues()).toEqual([]);
  expect(new Set(idsOf(receiver)).size).toBe(30);
  expect(await redis.hlen(keys.eventBytes)).toBe(0);
});

test('two senders never send one event at the same time, and all events arrive once', async () => {
  const open = new Map<string, number>();
  const receiver = await startReceiver((response, request) => {
    const id = String(request.headers['webhook-id']);
    expect(open.has(id)).toBe(false);
    open.set(id, 1);
    setImmediate(() => response.writeHead(200).end());
  });
  const automation = await createTriggered(store, 'shared', { onEnd: receiver.url });
  const senders = [startSender(), startSender(), startSender()];
  for (let count = 0; count < 100; count += 1) {
    await endRun(automation.id, 'shared', 'succeeded');
    for (const sender of senders) sender.wake();
  }
  await eventually(() => receiver.requests.length).toBe(100);
  expect(open.size).toBe(100);
});

test('the event of a sender that died is sent by another one when its turn is over', async () => {
  const receiver = await startReceiver(answerStatus(200));
  const runId = await cancelledRun('left', { onEnd: receiver.url });
  expect(await events.take('dead', 60_000)).toMatchObject({ slug: 'left', receiver: 'onEnd' });
  expect(await events.take('other', 60_000)).toBeUndefined();
  await redis.zadd(keys.eventQueues, 1, 'left:onEnd');
  startSender();
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ status: 'delivered' }]);
  expect(receiver.requests).toHaveLength(1);
});

test('what a sender whose turn is over says changes nothing', async () => {
  const runId = await cancelledRun('fenced', { onEnd: 'http://127.0.0.1:1/' });
  const turn = (await events.take('first', 0)) ?? expect.fail();
  const { events: found } = await events.read(turn, 10);
  const [event = expect.fail()] = found;
  expect(await events.take('second', 60_000)).toMatchObject({ slug: 'fenced' });
  await events.delivered(turn, event);
  await events.drop(turn, event, 1, 'x');
  await events.retry(turn, event, 60_000, 'x');
  await events.clear(turn);
  await events.release(turn, { turns: 3, since: new Date(), lastError: 'x' }, 60_000);
  expect(await deliveriesOf(runId)).toMatchObject([{ status: 'waiting', tries: 0 }]);
  expect(await redis.hget(keys.eventTurns, 'fenced:onEnd')).toBe('second');
});

test('an event that could not be delivered for 24 hours is dropped, counted and shown', async () => {
  const receiver = await startReceiver(answerStatus(500));
  startSender();
  const runId = await cancelledRun('old', { onEnd: receiver.url });
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ tries: 1 }]);
  const run = (await store.runs.get(runId)) ?? expect.fail();
  const id = eventIdOf(runId, 'cancelled');
  const aged = { ...run, endedAt: new Date(Date.now() - EVENT_RETRY_MS) };
  await redis.hset(keys.eventBodies('old', 'onEnd'), id, eventBody(aged, 'cancelled'));
  await skipPauses('old');
  await eventually(() => deliveriesOf(runId)).toMatchObject([
    { status: 'dropped', tries: 1, lastError: 'It could not be delivered for 24 hours.' },
  ]);
  expect([...(await events.drops())]).toEqual([
    [
      'old',
      {
        count: 1,
        latest: [
          {
            receiver: 'onEnd',
            at: expect.any(Date),
            lastError: 'It could not be delivered for 24 hours.',
          },
        ],
      },
    ],
  ]);
  expect(receiver.requests).toHaveLength(1);
});

test('an event that nobody could try for 24 hours is tried once', async () => {
  const receiver = await startReceiver(answerStatus(200));
  const runId = await cancelledRun('slept', { onEnd: receiver.url });
  const run = (await store.runs.get(runId)) ?? expect.fail();
  const aged = { ...run, endedAt: new Date(Date.now() - 2 * EVENT_RETRY_MS) };
  const id = eventIdOf(runId, 'cancelled');
  await redis.hset(keys.eventBodies('slept', 'onEnd'), id, eventBody(aged, 'cancelled'));
  startSender();
  await eventually(() => deliveriesOf(runId)).toMatchObject([{ status: 'delivered' }]);
});

test('an event whose body Redis has lost is dropped and counted; no empty body is sent', async () => {
  const receiver = await startReceiver(answerStatus(200));
  const runId = await cancelledRun('lost', { onEnd: receiver.url });
  await redis.del(keys.eventBodies('lost', 'onEnd'));
  startSender();
  await eventually(() => deliveriesOf(runId)).toMatchObject([
    { status: 'dropped', tries: 0, lastError: 'Redis has lost its body.' },
  ]);
  expect(await dropCounts()).toEqual([['lost', 1]]);
  expect(receiver.requests).toEqual([]);
});

test('the events of a URL that was removed from the automation are dropped', async () => {
  const runId = await cancelledRun('changed', { onEnd: 'http://127.0.0.1:1/' });
  const seen = (await store.automations.get('changed')) ?? expect.fail();
  await store.automations.replace(seen, definition('changed'));
  startSender();
  await eventually(() => events.queues()).toEqual([]);
  expect([...(await events.drops())]).toEqual([['changed', { count: 1, latest: [] }]]);
  expect(await deliveriesOf(runId)).toEqual([]);
});

test('a closed sender leaves its turns and events to the others', async () => {
  const hanging = await startReceiver(() => undefined);
  const sender = startSender();
  const runId = await cancelledRun('returned', { onEnd: hanging.url });
  await eventually(() => hanging.requests.length).toBe(1);
  await sender.close(0);
  expect(await redis.hlen(keys.eventTurns)).toBe(0);
  expect(await deliveriesOf(runId)).toMatchObject([{ status: 'waiting', tries: 0 }]);
  expect(await events.take('next', 1000)).toEqual({ slug: 'returned', receiver: 'onEnd', token: 'next' });
});

/** Ends a run as if a worker had. */
async function endRun(automationId: string, slug: string, status: 'succeeded' | 'failed'): Promise<string> {
  const opened = await store.automations.open(slug);
  if (opened.status !== 'authenticated') throw new Error(opened.status);
  expect(opened.automation.id).toBe(automationId);
  const runId = await acceptRun(store, opened.automation);
  const outcome = JSON.stringify({ status, reason: 'exit_code', message: status });
  const jobKey = `${keys.queuePrefix}:runs:${runId}`;
  await redis.lrem(`${keys.queuePrefix}:runs:wait`, 0, runId);
  await redis.hset(jobKey, {
    finishedOn: Date.now(),
    ...(status === 'succeeded' ? { returnvalue: outcome } : { failedReason: outcome }),
  });
  const set = status === 'succeeded' ? 'completed' : 'failed';
  await redis.zadd(`${keys.queuePrefix}:runs:${set}`, Date.now(), runId);
  const run = (await store.runs.get(runId)) ?? expect.fail();
  await store.index.end(slug, runId, { run, automationId });
  return runId;
}

describe('an event is queued', () => {
  test.each([
    ['succeeded', ['onEnd']],
    ['failed', ['onEnd', 'onFailure']],
  ] as const)('of a run that %s for %j', async (status, receivers) => {
    const urls = { onEnd: 'http://127.0.0.1:1/', onFailure: 'http://127.0.0.1:2/' };
    const automation = await createTriggered(store, 'both', urls);
    const runId = await endRun(automation.id, 'both', status);
    const found = await deliveriesOf(runId);
    expect(found.map(({ receiver }) => receiver)).toEqual(receivers);
    expect(found).toMatchObject(receivers.map(() => ({ status: 'waiting', tries: 0 })));
  });

  test('for neither a URL that the automation lacks, nor one of another automation with the slug', async () => {
    const first = await createTriggered(store, 'reborn', {});
    expect(await deliveriesOf(await endRun(first.id, 'reborn', 'failed'))).toEqual([]);
    const late = await acceptRun(store, first);
    await store.automations.delete('reborn');
    await createTriggered(store, 'reborn', { onEnd: 'http://127.0.0.1:1/' });
    await store.runs.cancel(late);
    await untilStatus(store, late, 'cancelled');
    expect(await events.queues()).toEqual([]);
  });

  test('once, however often the end of its run is noted', async () => {
    const automation = await createTriggered(store, 'once', { onEnd: 'http://127.0.0.1:1/' });
    const runId = await endRun(automation.id, 'once', 'succeeded');
    const run = (await store.runs.get(runId)) ?? expect.fail();
    expect(await store.index.end('once', runId, { run, automationId: automation.id })).toMatchObject({
      queued: 0,
    });
    expect(await events.queues()).toEqual([
      { slug: 'once', receiver: 'onEnd', waiting: 1, dueAt: expect.any(Date) },
    ]);
  });

  test('of a run that is skipped because its automation is busy', async () => {
    const lane = { concurrency: 1, whenBusy: 'skip', onEnd: 'http://127.0.0.1:1/' } as const;
    const automation = await createTriggered(store, 'busy', lane);
    await acceptRun(store, automation);
    const skipped = await acceptRun(store, automation);
    await eventually(() => deliveriesOf(skipped)).toMatchObject([{ receiver: 'onEnd', status: 'waiting' }]);
    expect(await events.queues()).toMatchObject([{ waiting: 1 }]);
  });

  test('not of a run that has not ended', async () => {
    const automation = await createTriggered(store, 'open', { onEnd: 'http://127.0.0.1:1/' });
    const runId = await acceptRun(store, automation);
    const run = (await store.runs.get(runId)) ?? expect.fail();
    await store.index.end('open', runId, {
      run: { ...run, status: 'succeeded' },
      automationId: automation.id,
    });
    expect(await events.queues()).toEqual([]);
    expect(await redis.zscore(keys.openRuns('open'), runId)).not.toBeNull();
  });

  test('by the next sweep when the process died that ended the run, however many runs are open', async () => {
    const automation = await createTriggered(store, 'crashed', { onEnd: 'http://127.0.0.1:1/' });
    for (let count = 0; count < 150; count += 1) await acceptRun(store, automation);
    const runId = await acceptRun(store, automation);
    const outcome = JSON.stringify({ status: 'succeeded', reason: 'exit_code', message: 'done' });
    await redis.hset(`${keys.queuePrefix}:runs:${runId}`, { finishedOn: Date.now(), returnvalue: outcome });
    await redis.zadd(`${keys.queuePrefix}:runs:completed`, Date.now(), runId);
    await store.retention.sweep({ maxAgeMs: 3_600_000, maxRuns: 1000 });
    expect(await events.queues()).toMatchObject([{ slug: 'crashed', waiting: 1 }]);
    expect(await deliveriesOf(runId)).toMatchObject([{ status: 'waiting' }]);
  });

  test('with the result, byte for byte, and outlives its run', async () => {
    const receiver = await startReceiver(answerStatus(200));
    const automation = await createTriggered(store, 'results', { onEnd: receiver.url });
    const runId = await acceptRun(store, automation);
    const result = '{"z":123456789012345678901234567890, "a":1.0}';
    await redis.set(keys.result(runId), result);
    const outcome = { status: 'succeeded', reason: 'exit_code', message: 'done', resultBytes: result.length };
    const jobKey = `${keys.queuePrefix}:runs:${runId}`;
    await redis.hset(jobKey, { finishedOn: Date.now(), returnvalue: JSON.stringify(outcome) });
    const run = (await store.runs.get(runId)) ?? expect.fail();
    await store.index.end('results', runId, { run, automationId: automation.id });
    await redis.del(jobKey, keys.result(runId));
    startSender();
    await eventually(() => receiver.requests.length).toBe(1);
    const [{ body }] = receiver.requests as [Received];
    expect(String(body)).toContain(`,"result":${result}}}`);
    expect(JSON.parse(String(body))).toMatchObject({ data: { run: { runId }, result: { a: 1 } } });
    await eventually(() => events.queues()).toEqual([]);
    expect(await redis.exists(jobKey)).toBe(0);
  });

  test.each([
    [{ onEnd: 'http://127.0.0.1:1/' }, MAX_WAITING_EVENTS],
    [{ onEnd: 'http://127.0.0.1:1/', onFailure: 'http://127.0.0.1:2/' }, MAX_WAITING_EVENTS / 2],
  ])('unless too many wait for %j: then it is dropped, counted and shown', async (urls, limit) => {
    const automation = await createTriggered(store, 'full', urls);
    const waiting = Array.from({ length: limit - 1 }, (_, index) => [index, `other-${index}`]);
    await redis.zadd(keys.eventQueue('full', 'onEnd'), ...waiting.flat());
    expect(await deliveriesOf(await endRun(automation.id, 'full', 'succeeded'))).toMatchObject([
      { status: 'waiting' },
    ]);
    expect(await deliveriesOf(await endRun(automation.id, 'full', 'succeeded'))).toEqual([
      {
        receiver: 'onEnd',
        status: 'dropped',
        at: expect.any(Date),
        tries: 0,
        lastError: 'Too many events of the automation waited for this URL.',
      },
    ]);
    expect(await dropCounts()).toEqual([['full', 1]]);
    await store.automations.delete('full');
    const left = await redis.keys(`${keys.queuePrefix}:event*`);
    expect(left).toEqual([]);
  });
});
