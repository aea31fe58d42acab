import { afterAll, beforeAll, expect, test } from 'vitest';
import { mintApiKey } from '../src/core/api-key.ts';
import { connect } from '../src/store/connect.ts';
import { createStore } from '../src/store/store.ts';
import { getHealth, postTrigger } from './support/http.ts';
import { type OrcProcess, startApiProcess, startOrc } from './support/orc-process.ts';
import { openPrivateRedis } from './support/private-redis.ts';
import { createAutomation, script } from './support/store.ts';

/** What the service promises about outages, in milliseconds. */
const REFUSED_WITHIN_MS = 2500;
const HEALTH_WITHIN_MS = 3000;
const RECOVERED_WITHIN_MS = 3000;

const redis = await openPrivateRedis();
let api: OrcProcess & { url: string };
let worker: OrcProcess;
let key: string;

beforeAll(async () => {
  api = await startApiProcess({ REDIS_URL: redis.url });
  worker = startOrc(['worker'], { env: { REDIS_URL: redis.url } });
});

afterAll(async () => {
  await Promise.all([api.stop(), worker.stop()]);
});

async function expectRefusal(): Promise<void> {
  // A client that waits no longer than this gets its answer.
  const patience = AbortSignal.timeout(REFUSED_WITHIN_MS);
  const { status, headers, body } = await postTrigger(api.url, 'work', key, '{}', { signal: patience });
  expect(status).toBe(503);
  expect(body).toMatchObject({ statusCode: 503, error: 'queue_unavailable' });
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
}

async function expectHealth(status: number): Promise<void> {
  await expect
    .poll(async () => (await getHealth(api.url)).status, { timeout: HEALTH_WITHIN_MS })
    .toBe(status);
}

/** Triggers are accepted, and the worker executes them. */
async function expectRecovery(): Promise<void> {
  let runId = '';
  await expect
    .poll(
      async () => {
        const { status, body } = await postTrigger(api.url, 'work', key);
        runId = String(body['runId']);
        return status;
      },
      { timeout: RECOVERED_WITHIN_MS, interval: 50 },
    )
    .toBe(202);
  await worker.record(
    ({ msg, runId: id, status }) => msg === 'run ended' && id === runId && status === 'succeeded',
  );
  await expectHealth(200);
}

test('while Redis has never been there, triggers and health are answered 503 in the shape of the contract', async () => {
  key = mintApiKey();
  expect(await getHealth(api.url)).toMatchObject({
    status: 503,
    body: { statusCode: 503, error: 'queue_unavailable', status: 'unavailable' },
  });
  await expectRefusal();
});

test('when Redis comes up for the first time, triggers are accepted and executed without a restart', async () => {
  await redis.start();
  const connection = connect(redis.url, 'patient', () => undefined);
  const store = createStore(connection, 'orc', () => undefined);
  key = await createAutomation(store, 'work', { action: script('') });
  await store.close();
  await expectRecovery();
});

test('while Redis is frozen, triggers are refused in time, and when it goes on they are accepted again', async () => {
  redis.freeze();
  await expectRefusal();
  await expectHealth(503);
  await expectRefusal();
  redis.thaw();
  await expectRecovery();
});

test('when Redis is killed, triggers are refused in time, and after its restart they are accepted again', async () => {
  await redis.kill();
  await expectRefusal();
  await expectHealth(503);
  await expectRefusal();
  await redis.start();
  await expectRecovery();
});

test('a run that was accepted before Redis was killed is executed after its restart', async () => {
  worker.child.kill('SIGSTOP');
  const { status, body } = await postTrigger(api.url, 'work', key);
  expect(status).toBe(202);
  await redis.kill();
  await redis.start();
  worker.child.kill('SIGCONT');
  const ended = await worker.record(({ msg, runId }) => msg === 'run ended' && runId === body['runId']);
  expect(ended['status']).toBe('succeeded');
});

test('with no worker alive, health is degraded and triggers are accepted', async () => {
  expect(await worker.stop()).toBe(0);
  await expect
    .poll(async () => (await getHealth(api.url)).body['status'], { timeout: 15_000 })
    .toBe('degraded');
  expect((await getHealth(api.url)).status).toBe(200);
  expect((await postTrigger(api.url, 'work', key)).status).toBe(202);
});
