import { afterAll, beforeAll, expect, test } from 'vitest';
import { Acceptance } from '../../src/api/acceptance.ts';
import { HealthMonitor } from '../../src/api/health-monitor.ts';
import { connect } from '../../src/store/connect.ts';
import { createStore } from '../../src/store/store.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { createAutomation, newPrefix } from '../support/store.ts';

const LIMITS = { acceptTimeoutMs: 2000, maxQueuedRuns: 100 };

const redis = await openPrivateRedis();
const store = createStore(
  connect(redis.url, 'fail-fast', () => undefined),
  newPrefix(),
  () => undefined,
);
const health = new HealthMonitor(store, () => undefined);
beforeAll(async () => {
  await redis.start();
  await health.start();
});
afterAll(async () => {
  health.close();
  await store.close();
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
  const authentication = await acceptance.authenticate('limited', apiKey, acceptance.deadline());
  if (authentication.status !== 'authenticated') throw new Error(authentication.status);

  const request = { payload: '{}', requestId: 'one', idempotencyKey: 'one' };
  await expect(
    acceptance.accept(authentication.automation, request, acceptance.deadline()),
  ).rejects.toMatchObject({ id: 'rate_limited' });
});
