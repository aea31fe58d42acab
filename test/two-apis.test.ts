import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { postTrigger } from './support/http.ts';
import { startApiProcess } from './support/orc-process.ts';
import { openPrivateRedis } from './support/private-redis.ts';
import { connectStore, createAutomation, newPrefix } from './support/store.ts';

/** What is exact must be exact over two API processes, which share nothing but Redis. */
const redis = await openPrivateRedis();

type Two = Awaited<ReturnType<typeof startTwo>>;

/** For tests with automations of their own. */
let two: Two;

beforeAll(async () => {
  await redis.start();
  two = await startTwo();
});

afterAll(() => two.close());

async function startTwo(env: NodeJS.ProcessEnv = {}) {
  const prefix = newPrefix();
  const own = { REDIS_URL: redis.url, REDIS_PREFIX: prefix, ...env };
  const store = connectStore(redis.url, 'patient', prefix);
  const apis = await Promise.all([startApiProcess(own), startApiProcess(own)]);
  const close = async () => {
    redis.thaw();
    await Promise.all(apis.map((api) => api.stop()));
    await store.close();
  };
  const origins = apis.map(({ url }) => url);
  /** Sends so many requests at once, to both in turns; counts the statuses. */
  const triggerAll = async (slug: string, key: string, count: number, headers: Record<string, string> = {}) =>
    Promise.all(
      Array.from({ length: count }, (_, index) =>
        postTrigger(origins[index % 2] ?? '', slug, key, '{}', { headers }),
      ),
    );
  return { store, triggerAll, close };
}

function countStatuses(answers: { status: number }[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

test('200 requests at once with one idempotency key make one run', async () => {
  const { store, triggerAll } = two;
  const key = await createAutomation(store, 'idempotent');
  const answers = await triggerAll('idempotent', key, 200, { 'idempotency-key': 'one' });
  expect(countStatuses(answers)).toEqual({ 202: 200 });
  expect(new Set(answers.map(({ body }) => body['runId'])).size).toBe(1);
  expect(answers.filter(({ headers }) => !headers.has('idempotency-replayed'))).toHaveLength(1);
  expect(await store.runs.list({ automation: 'idempotent', limit: 10 })).toHaveLength(1);
});

test('a rate is not exceeded by one run', async () => {
  const { store, triggerAll } = two;
  const key = await createAutomation(store, 'limited', { rate: { limit: 17, windowMs: 600_000 } });
  expect(countStatuses(await triggerAll('limited', key, 100))).toEqual({ 202: 17, 429: 83 });
  expect(await store.runs.list({ automation: 'limited', limit: 100 })).toHaveLength(17);
});

test('MAX_QUEUED_RUNS is not exceeded by one run', async () => {
  const { store, triggerAll, close } = await startTwo({ MAX_QUEUED_RUNS: '23' });
  onTestFinished(close);
  const [plain, limited] = [
    await createAutomation(store, 'plain'),
    await createAutomation(store, 'limited', { concurrency: 1 }),
  ];
  const answers = await Promise.all([triggerAll('plain', plain, 50), triggerAll('limited', limited, 50)]);
  expect(countStatuses(answers.flat())).toEqual({ 202: 23, 503: 77 });
  expect(await store.runs.countQueued()).toBe(23);
});

test('a key that was revoked is refused on its next request, by every process that has known it', async () => {
  const { store, triggerAll } = two;
  const key = await createAutomation(store, 'revoked');
  expect(countStatuses(await triggerAll('revoked', key, 10))).toEqual({ 202: 10 });
  await store.automations.rotateKey('revoked', 0);
  expect(countStatuses(await triggerAll('revoked', key, 10))).toEqual({ 401: 10 });
  expect(await store.runs.list({ automation: 'revoked', limit: 100 })).toHaveLength(10);
});

test('what a frozen Redis executes after its callers were answered 503 enqueues nothing', {
  timeout: 60_000,
}, async () => {
  const { store, triggerAll } = two;
  const keys = {
    plain: await createAutomation(store, 'plain'),
    'in-a-lane': await createAutomation(store, 'in-a-lane', { concurrency: 1 }),
  };
  const accepted = new Set<unknown>();
  let isLoaded = true;
  const callers = Object.entries(keys).flatMap(([slug, key]) =>
    Array.from({ length: 10 }, async () => {
      while (isLoaded) {
        for (const { status, body } of await triggerAll(slug, key, 2)) {
          expect([202, 503]).toContain(status);
          if (status === 202) accepted.add(body['runId']);
        }
      }
    }),
  );
  await expect.poll(() => accepted.size, { timeout: 20_000 }).toBeGreaterThan(100);
  redis.freeze();
  // As long as an outage of which each caller is told more than once.
  await sleep(5000);
  isLoaded = false;
  await Promise.all(callers);
  const thawedAt = Date.now();
  redis.thaw();
  const listed = new Set((await store.runs.list({ limit: 100_000 })).map(({ id }) => id));
  for (const runId of accepted) expect(listed).toContain(runId);
  // BullMQ notes each job that it adds, and Redis gives each note an id by its own time.
  const notes = await store.redis.xrange(`${store.keys.queuePrefix}:runs:events`, thawedAt, '+');
  const enqueued = new Set(notes.map(([, fields]) => fields[fields.indexOf('jobId') + 1]));
  // Stopped within a script that has looked at the clock, Redis executes the rest of this one script.
  expect(enqueued.size).toBeLessThanOrEqual(1);
  // It keeps the latest.
  expect(await store.redis.xlen(`${store.keys.queuePrefix}:runs:events`)).toBeGreaterThan(0);
});
