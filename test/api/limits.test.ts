import { beforeAll, describe, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { QueueOpener } from '../../src/store/queue.ts';
import { type Answer, expectAccepted, expectError, openTestApp, trigger } from '../support/app.ts';
import { createAutomation } from '../support/store.ts';

const perMinute = (limit: number) => ({ rate: { limit, windowMs: 60_000 } });

describe('an automation with a rate limit', () => {
  const { app, store } = openTestApp();

  test('accepts as many runs as the limit says, then answers 429 with Retry-After', async () => {
    const key = await createAutomation(store, 'twice', perMinute(2));
    expectAccepted(await app.inject(trigger('twice', key, '{}')));
    expectAccepted(await app.inject(trigger('twice', key, '{}')));
    const refused = await app.inject(trigger('twice', key, '{}'));
    const { hint } = expectError(refused, 429, 'rate_limited');
    expect(hint).toMatch(/Retry-After/);
    expectRetryAfter(refused, 60);
    expect(await store.runs.list({ automation: 'twice', limit: 10 })).toHaveLength(2);
  });

  test('accepts no more than the limit of many requests at once', async () => {
    const key = await createAutomation(store, 'at-once', perMinute(5));
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => app.inject(trigger('at-once', key, '{}'))),
    );
    const statuses = answers.map(({ statusCode }) => statusCode).sort();
    expect(statuses).toEqual([...Array(5).fill(202), ...Array(15).fill(429)]);
    expect(await store.runs.list({ automation: 'at-once', limit: 20 })).toHaveLength(5);
  });

  test('counts no request that is refused for another reason', async () => {
    const key = await createAutomation(store, 'once', perMinute(1));
    expectError(await app.inject(trigger('once', key, '{')), 400, 'invalid_json');
    expectError(await app.inject(trigger('once', key, '[]')), 400, 'invalid_payload');
    const asText = trigger('once', key, '{}', { 'content-type': 'text/plain' });
    expectError(await app.inject(asText), 415, 'unsupported_media_type');
    expectError(await app.inject(trigger('once', key, ' '.repeat(262_145))), 413, 'payload_too_large');
    expectError(await app.inject(trigger('once', mintApiKey(), '{}')), 401, 'invalid_api_key');
    await store.automations.setEnabled('once', false);
    expectError(await app.inject(trigger('once', key, '{}')), 403, 'automation_disabled');
    await store.automations.setEnabled('once', true);
    expectAccepted(await app.inject(trigger('once', key, '{}')));
    expectError(await app.inject(trigger('once', key, '{}')), 429, 'rate_limited');
  });

  test('is judged after the key and the body', async () => {
    const key = await createAutomation(store, 'order', perMinute(1));
    expectAccepted(await app.inject(trigger('order', key, '{}')));
    expectError(await app.inject(trigger('order', key, 'not json')), 400, 'invalid_json');
    expectError(await app.inject(trigger('order', key, '{}')), 429, 'rate_limited');
    expectError(await app.inject(trigger('order', mintApiKey(), '{}')), 401, 'invalid_api_key');
    await store.automations.setEnabled('order', false);
    expectError(await app.inject(trigger('order', key, '{}')), 403, 'automation_disabled');
  });

  test('limits no other automation', async () => {
    const key = await createAutomation(store, 'limited', perMinute(1));
    const otherKey = await createAutomation(store, 'also-limited', perMinute(1));
    expectAccepted(await app.inject(trigger('limited', key, '{}')));
    expectError(await app.inject(trigger('limited', key, '{}')), 429, 'rate_limited');
    expectAccepted(await app.inject(trigger('also-limited', otherKey, '{}')));
  });

  test('accepts runs again when its window is over', async () => {
    const key = await createAutomation(store, 'window', perMinute(1));
    const automation = await store.automations.get('window');
    expectAccepted(await app.inject(trigger('window', key, '{}')));
    expectError(await app.inject(trigger('window', key, '{}')), 429, 'rate_limited');
    // The window ends by the expiry of its key; nothing else of it is left then.
    await store.redis.pexpire(store.keys.rateWindow(automation?.id ?? ''), 0);
    expectAccepted(await app.inject(trigger('window', key, '{}')));
  });
});

describe('a queue that holds as many runs as it may', () => {
  const { app, store, health } = openTestApp({ maxQueuedRuns: 3 });

  // A sample that is taken while a run is accepted may miss it, which would let one run too many in.
  beforeAll(() => health.close());

  async function emptyQueue() {
    const queue = await new QueueOpener(store.redis, store.keys, () => undefined).open();
    await queue.drain(true);
  }

  test('answers 503 queue_full with Retry-After, until runs have left it', async () => {
    const key = await createAutomation(store, 'full');
    for (let accepted = 0; accepted < 3; accepted += 1) {
      expectAccepted(await app.inject(trigger('full', key, '{}')));
    }
    const refused = await app.inject(trigger('full', key, '{}'));
    const { hint } = expectError(refused, 503, 'queue_full');
    expect(hint).toMatch(/Retry-After/);
    expectRetryAfter(refused, 60);
    expect(await store.runs.countQueued()).toBe(3);
    expect((await app.inject('/orc/health')).statusCode).toBe(200);

    await emptyQueue();
    expectAccepted(await app.inject(trigger('full', key, '{}')));
    await emptyQueue();
  });

  test('is judged after everything else, and a refused request counts against no rate limit', async () => {
    const filler = await createAutomation(store, 'filler');
    const key = await createAutomation(store, 'full-limited', perMinute(1));
    for (let accepted = 0; accepted < 3; accepted += 1) {
      expectAccepted(await app.inject(trigger('filler', filler, '{}')));
    }
    expectError(await app.inject(trigger('full-limited', mintApiKey(), '{}')), 401, 'invalid_api_key');
    expectError(await app.inject(trigger('full-limited', key, '{')), 400, 'invalid_json');
    expectError(await app.inject(trigger('full-limited', key, '{}')), 503, 'queue_full');

    await emptyQueue();
    expectAccepted(await app.inject(trigger('full-limited', key, '{}')));
    expectError(await app.inject(trigger('full-limited', key, '{}')), 429, 'rate_limited');
    await emptyQueue();
  });

  test('counts the runs that wait for a place of their automation', async () => {
    const key = await createAutomation(store, 'in-lane', { concurrency: 1 });
    for (let accepted = 0; accepted < 3; accepted += 1) {
      expectAccepted(await app.inject(trigger('in-lane', key, '{}')));
    }
    expectError(await app.inject(trigger('in-lane', key, '{}')), 503, 'queue_full');
    await emptyQueue();
  });
});

/** Whole seconds (RFC 9110, section 10.2.3), at least one. */
function expectRetryAfter(answer: Answer, maxSeconds: number): void {
  const value = String(answer.headers['retry-after']);
  expect(value).toMatch(/^\d+$/);
  expect(Number(value)).toBeGreaterThanOrEqual(1);
  expect(Number(value)).toBeLessThanOrEqual(maxSeconds);
}
