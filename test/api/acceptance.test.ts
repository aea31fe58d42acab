import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Acceptance } from '../../src/api/acceptance.ts';
import { HealthMonitor } from '../../src/api/health-monitor.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { connectStore, createAutomation, newPrefix } from '../support/store.ts';

const LIMITS = { acceptTimeoutMs: 2000, maxQueuedRuns: 100 };

const redis = await openPrivateRedis();
const store = connectStore(redis.url, 'fail-fast', newPrefix());
const health = new HealthMonitor(store, () => undefined);
beforeEach(async () => {
  await redis.start();
  await health.start();
});
afterEach(() => {
  health.close();
  return redis.stop();
});
afterAll(() => store.close());

async function authenticated(acceptance: Acceptance, slug: string, apiKey: string) {
  const authentication = await acceptance.authenticate(slug, apiKey, acceptance.deadline());
  if (authentication.status !== 'authenticated') throw new Error(authentication.status);
  return authentication.automation;
}

test('a run that Redis had no memory for was certainly not accepted, and its idempotency key is free', async () => {
  const apiKey = await createAutomation(store, 'full');
  const acceptance = new Acceptance(store, health, LIMITS);
  const automation = await authenticated(acceptance, 'full', apiKey);
  const { reserve } = store.idempotency;
  const request = { payload: '{}', requestId: 'one', idempotencyKey: 'one' };
  const accept = () => acceptance.accept(automation, request, acceptance.deadline());

  // Memory ends after the key was reserved.
  vi.spyOn(store.idempotency, 'reserve').mockImplementationOnce(async (...question) => {
    const answer = await reserve.apply(store.idempotency, question);
    await store.redis.config('SET', 'maxmemory', 1);
    return answer;
  });
  await expect(accept()).rejects.toMatchObject({
    id: 'queue_unavailable',
    isUnconfirmed: false,
    cause: { message: expect.stringContaining('OOM') },
  });
  await store.redis.config('SET', 'maxmemory', 0);
  expect(await store.runs.list({ limit: 10 })).toEqual([]);
  expect(await accept()).toMatchObject({ status: 'queued', headers: {} });
});

test('a request over the rate is answered 429 even if Redis goes away before its idempotency key is free again', async () => {
  const apiKey = await createAutomation(store, 'limited', { rate: { limit: 1, windowMs: 60_000 } });
  const { rateLimiter } = store;
  const goesAway = {
    peek: rateLimiter.peek.bind(rateLimiter),
    take: async (...question: Parameters<typeof rateLimiter.take>) => {
      // Between this request's look at the rate and its turn another one has taken the last place.
      await rateLimiter.take(...question);
      const decision = await rateLimiter.take(...question);
      await redis.kill();
      return decision;
    },
  };
  const acceptance = new Acceptance({ ...store, rateLimiter: goesAway as never }, health, LIMITS);
  const automation = await authenticated(acceptance, 'limited', apiKey);

  const request = { payload: '{}', requestId: 'one', idempotencyKey: 'one' };
  await expect(acceptance.accept(automation, request, acceptance.deadline())).rejects.toMatchObject({
    id: 'rate_limited',
  });
});
