import { expect, test } from 'vitest';
import { openTestStore } from '../support/store.ts';

const { redis, keys, rateLimiter } = openTestStore();

const RATE = { limit: 3, windowMs: 60_000 };

async function takeAll(id: string): Promise<void> {
  for (let taken = 0; taken < RATE.limit; taken += 1) {
    expect(await rateLimiter.take(id, RATE)).toMatchObject({
      allowed: true,
      remaining: RATE.limit - taken - 1,
    });
  }
}

test('a window allows as many runs as its limit, and says how long it lasts to those beyond', async () => {
  await takeAll('full');
  const decision = await rateLimiter.take('full', RATE);
  expect(decision).toMatchObject({ allowed: false, remaining: 0 });
  expect(decision.resetMs).toBeGreaterThan(0);
  expect(decision.resetMs).toBeLessThanOrEqual(RATE.windowMs);
});

test('runs that come at once are counted one by one', async () => {
  const decisions = await Promise.all(Array.from({ length: 20 }, () => rateLimiter.take('rush', RATE)));
  expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(RATE.limit);
});

test('a run that is refused does not make the window longer', async () => {
  await takeAll('patient');
  await redis.pexpire(keys.rateWindow('patient'), RATE.windowMs / 2);
  expect(await rateLimiter.take('patient', RATE)).toMatchObject({ allowed: false });
  expect(await redis.pttl(keys.rateWindow('patient'))).toBeLessThanOrEqual(RATE.windowMs / 2);
});

test('a new window begins when the last one is over', async () => {
  await takeAll('over');
  await redis.pexpire(keys.rateWindow('over'), 1);
  await expect.poll(() => redis.exists(keys.rateWindow('over'))).toBe(0);
  await takeAll('over');
  expect(await rateLimiter.take('over', RATE)).toMatchObject({ allowed: false });
});

test('automations do not share their windows', async () => {
  await takeAll('one');
  expect(await rateLimiter.take('another', RATE)).toMatchObject({ allowed: true });
});

test('asking whether a run would be allowed counts nothing and answers as counting does', async () => {
  for (let asked = 0; asked < 2 * RATE.limit; asked += 1) {
    expect(await rateLimiter.peek('asked', RATE)).toMatchObject({ allowed: true, remaining: RATE.limit });
  }
  await takeAll('asked');
  expect(await rateLimiter.peek('asked', RATE)).toMatchObject({ allowed: false, remaining: 0 });
});
