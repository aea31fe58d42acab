import { describe, expect, test } from 'vitest';
import { buildApp } from '../../src/api/app.ts';
import { HealthMonitor, type HealthSample } from '../../src/api/health-monitor.ts';
import { createLogger } from '../../src/logger.ts';
import { connect } from '../../src/store/connect.ts';
import { createStore } from '../../src/store/store.ts';
import { expectAccepted, expectError, openTestApp, SETTINGS, trigger } from '../support/app.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { createAutomation, newPrefix } from '../support/store.ts';

const HEALTH = '/orc/health';

/** RFC 3339, section 5.6, in the form that JavaScript writes. */
const DATE_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;

const redisServer = await openPrivateRedis();

describe('with a worker alive', () => {
  const { app, health } = openTestApp({ frontendUrl: 'https://app.example.com' });

  test('health is a 200 with status ok, time, version and the origin of the web client', async () => {
    const answer = await app.inject(HEALTH);
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toMatch(/^application\/json/);
    expect(answer.json()).toEqual({
      status: 'ok',
      timestamp: expect.stringMatching(DATE_TIME),
      version: '1.2.3-test',
      frontendUrl: 'https://app.example.com',
    });
  });

  test('its timestamp is the time at which Redis was asked, not the time of the answer', async () => {
    const { checkedAt } = health.latest;
    const { timestamp } = (await app.inject(HEALTH)).json();
    // Meanwhile another sample may have been taken.
    expect([checkedAt, health.latest.checkedAt]).toContain(timestamp);
  });

  test('health needs no key and does not mind one', async () => {
    expect((await app.inject({ url: HEALTH, headers: { 'x-api-key': 'anything' } })).statusCode).toBe(200);
  });

  test('health is not kept by caches', async () => {
    expect((await app.inject(HEALTH)).headers['cache-control']).toBe('no-store');
  });

  test('HEAD is the same answer without its body', async () => {
    const head = await app.inject({ method: 'HEAD', url: HEALTH });
    expect(head).toMatchObject({ statusCode: 200, body: '' });
    expect(head.headers['cache-control']).toBe('no-store');
  });

  test('a body or a query with the request means nothing', async () => {
    const answer = await app.inject({ url: `${HEALTH}?verbose=1`, payload: '{"broken":' });
    expect(answer.statusCode).toBe(200);
  });
});

describe('without a worker', () => {
  const { app, store } = openTestApp({}, { hasWorker: false });

  test('health is a 200 with status degraded, since runs are accepted and wait', async () => {
    const answer = await app.inject(HEALTH);
    expect(answer.statusCode).toBe(200);
    expect(answer.json()).toEqual({
      status: 'degraded',
      timestamp: expect.stringMatching(DATE_TIME),
      version: '1.2.3-test',
    });
    const key = await createAutomation(store, 'waits');
    expectAccepted(await app.inject(trigger('waits', key, '{}')));
  });
});

describe('without Redis', () => {
  /** The app over the private Redis, and what its health becomes. */
  async function open(acceptTimeoutMs = SETTINGS.acceptTimeoutMs) {
    const redis = connect(redisServer.url, 'fail-fast', () => undefined);
    const store = createStore(redis, newPrefix(), () => undefined);
    const changes: HealthSample['status'][] = [];
    let wake = () => {};
    const health = new HealthMonitor(store, (_, { status }) => {
      changes.push(status);
      wake();
    });
    const settings = { ...SETTINGS, acceptTimeoutMs, frontendUrl: 'https://app.example.com' };
    const app = buildApp({ store, health, logger: createLogger('silent', 'api'), settings });
    await health.start();
    return {
      app,
      store,
      /** Resolves with the next change of health, one that was not yet waited for included. */
      nextChange: async () => {
        while (changes.length === 0) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
        return changes.shift();
      },
      close: async () => {
        health.close();
        await app.close();
        await store.close();
      },
    };
  }

  test('health is a 503 that is an error object and a health report, and triggers are 503', async () => {
    const { app, close } = await open();
    try {
      const answer = await app.inject(HEALTH);
      expect(answer.statusCode).toBe(503);
      expect(answer.headers).toMatchObject({ 'cache-control': 'no-store', 'retry-after': '2' });
      expect(answer.json()).toEqual({
        statusCode: 503,
        error: 'queue_unavailable',
        message: expect.stringMatching(/./),
        hint: expect.stringMatching(/./),
        status: 'unavailable',
        timestamp: expect.stringMatching(DATE_TIME),
        version: '1.2.3-test',
        frontendUrl: 'https://app.example.com',
      });
      expect(await app.inject({ method: 'HEAD', url: HEALTH })).toMatchObject({ statusCode: 503, body: '' });
    } finally {
      await close();
    }
  });

  test('triggers are 503 queue_unavailable with Retry-After, and accepted again once Redis is back', async () => {
    await redisServer.start();
    const { app, store, nextChange, close } = await open();
    try {
      const key = await createAutomation(store, 'outage');
      await store.workers.beat('test-worker');
      expectAccepted(await app.inject(trigger('outage', key, '{}')));

      await redisServer.stop();
      while ((await nextChange()) !== 'unavailable');
      const refused = await app.inject(trigger('outage', key, '{}'));
      const { hint } = expectError(refused, 503, 'queue_unavailable');
      expect(hint).toMatch(/\/orc\/health/);
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
      expectError(await app.inject(trigger('outage', undefined, '{}')), 401, 'missing_api_key');
      expectError(await app.inject(trigger('outage', 'malformed', '{}')), 401, 'invalid_api_key');
      expect((await app.inject(HEALTH)).json()).toMatchObject({ status: 'unavailable', statusCode: 503 });

      await redisServer.start();
      await nextChange();
      expect((await app.inject(HEALTH)).statusCode).toBe(200);
      expectAccepted(await app.inject(trigger('outage', key, '{}')));
    } finally {
      await close();
      await redisServer.stop();
    }
  });

  test('a trigger does not wait for a Redis that is known to be frozen', async () => {
    await redisServer.start();
    // Waiting for that long would fail this test.
    const { app, store, nextChange, close } = await open(600_000);
    try {
      const key = await createAutomation(store, 'known-frozen');
      redisServer.freeze();
      while ((await nextChange()) !== 'unavailable');
      expectError(await app.inject(trigger('known-frozen', key, '{}')), 503, 'queue_unavailable');
    } finally {
      redisServer.thaw();
      await close();
      await redisServer.stop();
    }
  });

  test('a trigger that meets a Redis frozen a moment ago is a 503 after ACCEPT_TIMEOUT_MS', async () => {
    await redisServer.start();
    const { app, store, close } = await open(100);
    try {
      const key = await createAutomation(store, 'just-frozen');
      redisServer.freeze();
      expectError(await app.inject(trigger('just-frozen', key, '{}')), 503, 'queue_unavailable');
    } finally {
      redisServer.thaw();
      await close();
      await redisServer.stop();
    }
  });

  test('a trigger that meets a Redis gone a moment ago is a 503 in the contract’s shape', async () => {
    await redisServer.start();
    const { app, store, close } = await open();
    try {
      const key = await createAutomation(store, 'just-gone');
      await redisServer.kill();
      expectError(await app.inject(trigger('just-gone', key, '{}')), 503, 'queue_unavailable');
    } finally {
      await close();
    }
  });
});
