import { once } from 'node:events';
import { type AddressInfo, connect as connectTo, createServer } from 'node:net';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { buildApp } from '../../src/api/app.ts';
import { HealthMonitor } from '../../src/api/health-monitor.ts';
import { mintApiKey } from '../../src/core/api-key.ts';
import { createLogger } from '../../src/logger.ts';
import { untilReady } from '../../src/store/connect.ts';
import type { Store } from '../../src/store/store.ts';
import { expectAccepted, expectError, openTestApp, readRun, SETTINGS, trigger } from '../support/app.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { SUCCEEDED, startConsumer } from '../support/runs.ts';
import { connectStore, createAutomation, definition, newPrefix } from '../support/store.ts';

/**
 * The second request with a key is tried with what the first one has shown: what the key opens. Every test here is about
 * what may have changed between the two.
 */
const { app, store, health } = openTestApp();
const privateRedis = await openPrivateRedis();
beforeAll(() => health.close());

/** Creates an automation and triggers it, so that its key is remembered from then on. */
async function createTriggered(slug: string, changes: Parameters<typeof createAutomation>[2] = {}) {
  const key = await createAutomation(store, slug, changes);
  expectAccepted(await app.inject(trigger(slug, key, '{}')));
  return key;
}

/** An answer without what differs from request to request. */
async function answerTo(request: ReturnType<typeof trigger>) {
  const { statusCode, headers, body } = await app.inject(request);
  const { date: _date, 'x-request-id': _id, ...comparable } = headers;
  return { statusCode, headers: comparable, body };
}

/** Everything that Redis holds for this file, byte for byte. */
async function everything({ redis, keys }: Store): Promise<Map<string, string | undefined>> {
  const found = (await redis.keys(`${keys.queuePrefix}*`)).sort();
  const values = await Promise.all(found.map((key) => redis.dumpBuffer(key)));
  return new Map(found.map((key, index) => [key, values[index]?.toString('base64')]));
}

/** Names of the commands that requests send to Redis while `act` goes on. */
async function commandsOf(act: () => Promise<unknown>): Promise<string[]> {
  const send = vi.spyOn(store.redis, 'sendCommand');
  await act();
  const names = send.mock.calls.map(([{ name }]) => name);
  send.mockRestore();
  return names;
}

describe('a key that was right a moment ago', () => {
  test('takes one question to Redis, and makes the same run that it made with two', async () => {
    const key = await createAutomation(store, 'fast', { attempts: 3 });
    const request = trigger('fast', key, '{"big":12345678901234567890}', {
      'x-request-id': 'one',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    });
    const runIds: string[] = [];
    const accept = async () => void runIds.push(expectAccepted(await app.inject(request)));
    await accept();
    expect(await commandsOf(accept)).toHaveLength(1);

    expect((await store.runs.list({ automation: 'fast', limit: 10 })).map(({ id }) => id)).toEqual(
      runIds.toReversed(),
    );
    const jobs = runIds.map((id) => store.redis.hgetall(`${store.keys.queuePrefix}:runs:${id}`));
    const [first, ...others] = (await Promise.all(jobs)).map(({ timestamp: _, ...job }) => job);
    expect(first).toMatchObject({ name: 'fast' });
    expect(others).toEqual([first]);
    const attempts = await Promise.all(runIds.map((id) => readRun(store, id)));
    expect(new Set(attempts.map(({ payload }) => payload.toString()))).toEqual(
      new Set(['{"big":12345678901234567890}']),
    );
  });

  test.each<[string, number, (slug: string) => Promise<unknown>]>([
    ['is revoked', 401, (slug) => store.automations.rotateKey(slug, 0)],
    ['belongs to an automation that is disabled', 403, (slug) => store.automations.setEnabled(slug, false)],
    ['belongs to an automation that is deleted', 401, (slug) => store.automations.delete(slug)],
    [
      'belongs to an automation that is deleted and created again',
      401,
      async (slug) => {
        await store.automations.delete(slug);
        await createAutomation(store, slug);
      },
    ],
  ])(
    'and now %s is a %i from the next request on, and leaves nothing in Redis',
    async (title, status, change) => {
      const slug = title.toLowerCase().replaceAll(/[^a-z]+/g, '-');
      const key = await createTriggered(slug);
      await change(slug);
      const before = await everything(store);
      const first = await answerTo(trigger(slug, key, '{}'));
      expect(first.statusCode).toBe(status);
      expect(await answerTo(trigger(slug, key, '{}'))).toEqual(first);
      expect(await answerTo(trigger(slug, key, 'not JSON'))).toEqual(first);
      expect(await everything(store)).toEqual(before);
    },
  );

  test('is judged before the body', async () => {
    const key = await createTriggered('bodies');
    expectError(await app.inject(trigger('bodies', key, '[]')), 400, 'invalid_payload');
    await store.automations.rotateKey('bodies', 0);
    expectError(await app.inject(trigger('bodies', key, '[]')), 401, 'invalid_api_key');
  });

  test('and that ends later is right until then, and so is its successor', async () => {
    const key = await createTriggered('rotated');
    const rotated = await store.automations.rotateKey('rotated', 60_000);
    const successor = rotated.status === 'rotated' ? rotated.apiKey : '';
    for (const each of [key, successor, key, successor]) {
      expectAccepted(await app.inject(trigger('rotated', each, '{}')));
    }
    await store.redis.hset(store.keys.automation('rotated'), 'previousKeyEndsAt', Date.now());
    expectError(await app.inject(trigger('rotated', key, '{}')), 401, 'invalid_api_key');
    expectAccepted(await app.inject(trigger('rotated', successor, '{}')));
  });

  test('opens nothing for a wrong key', async () => {
    const key = await createTriggered('stolen');
    const before = await everything(store);
    expectError(await app.inject(trigger('stolen', mintApiKey(), '{}')), 401, 'invalid_api_key');
    expect(await everything(store)).toEqual(before);
    expect(await commandsOf(() => app.inject(trigger('stolen', key, '{}')))).toHaveLength(1);
  });

  test('opens an automation as it is now, and not as it was', async () => {
    const key = await createTriggered('edited');
    const replace = async (changes: Parameters<typeof definition>[1]) => {
      const seen = await store.automations.get('edited');
      if (!seen) throw new Error('edited is gone');
      await store.automations.replace(seen, definition('edited', changes));
    };
    const accept = async () => {
      const runId = expectAccepted(await app.inject(trigger('edited', key, '{}')));
      return store.redis.hgetall(`${store.keys.queuePrefix}:runs:${runId}`);
    };

    await replace({ attempts: 4 });
    expect(JSON.parse((await accept())['opts'] ?? '')).toMatchObject({ attempts: 4 });
    await accept();
    await replace({ attempts: 4, concurrency: 1 });
    expect(JSON.parse((await accept())['data'] ?? '')).toMatchObject({ inLane: true });
    await replace({});
    await accept();
    await store.redis.hset(store.keys.automation('edited'), 'id', 'restored');
    expect(JSON.parse((await accept())['data'] ?? '')).toMatchObject({ automationId: 'restored' });
    await accept();
    await replace({ rate: { limit: 1, windowMs: 60_000 } });
    await accept();
    expectError(await app.inject(trigger('edited', key, '{}')), 429, 'rate_limited');
  });

  test('makes a run in a Redis that has lost its scripts', async () => {
    const key = await createTriggered('scripted');
    for (let flushes = 0; flushes < 2; flushes += 1) {
      expectAccepted(await app.inject(trigger('scripted', key, '{}')));
      await store.redis.script('FLUSH', 'SYNC');
    }
    expectAccepted(await app.inject(trigger('scripted', key, '{}')));
    expect(await store.runs.list({ automation: 'scripted', limit: 10 })).toHaveLength(4);
  });

  test('makes no run any more once its rotation has returned, however many requests are on their way', async () => {
    const key = await createTriggered('busy');
    const count = () => store.redis.zcard(store.keys.openRuns('busy'));
    let isRotated = false;
    let accepted = 1;
    const send = async () => {
      for (let afterwards = 0; afterwards < 3; afterwards += isRotated ? 1 : 0) {
        const startedAfterwards = isRotated;
        const { statusCode } = await app.inject(trigger('busy', key, '{}'));
        expect(startedAfterwards ? [401] : [202, 401]).toContain(statusCode);
        accepted += statusCode === 202 ? 1 : 0;
      }
    };
    const sending = Array.from({ length: 20 }, send);
    await expect.poll(count, { interval: 5 }).toBeGreaterThan(200);
    await store.automations.rotateKey('busy', 0);
    isRotated = true;
    const atRotation = await count();
    await Promise.all(sending);
    expect(await count()).toBe(atRotation);
    expect(accepted).toBe(atRotation);
  });
});

describe('in a Redis of its own', () => {
  beforeAll(() => privateRedis.start());

  /** A triggered automation, and an app whose connection to Redis can be cut between a command and its reply. */
  async function openApp() {
    let meanwhile: (() => Promise<unknown>) | undefined;
    let mayConnect: Promise<unknown> = Promise.resolve();
    const proxy = createServer(async (client) => {
      client.on('error', () => undefined);
      await mayConnect;
      const upstream = connectTo(privateRedis.url).on('error', () => undefined);
      client.on('close', () => upstream.destroy());
      upstream.on('close', () => client.destroy());
      client.pipe(upstream);
      upstream.on('data', (data) => {
        if (!meanwhile) return client.write(data);
        mayConnect = meanwhile();
        meanwhile = undefined;
        return client.destroy();
      });
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    const { port } = proxy.address() as AddressInfo;
    const prefix = newPrefix();
    const [direct, damaged] = [privateRedis.url, `redis://127.0.0.1:${port}`].map((url) =>
      connectStore(url, 'fail-fast', prefix),
    ) as [Store, Store];
    await Promise.all([untilReady(direct.redis, 10_000), untilReady(damaged.redis, 10_000)]);
    const sampled = new HealthMonitor(damaged, () => undefined);
    await sampled.start();
    sampled.close();
    const ownApp = buildApp({
      store: damaged,
      health: sampled,
      logger: createLogger('silent', 'api'),
      settings: SETTINGS,
    });
    onTestFinished(async () => {
      await ownApp.close();
      await Promise.all([damaged.close(), direct.close()]);
      proxy.close();
    });
    const key = await createAutomation(direct, 'own');
    const send = async () => ownApp.inject(trigger('own', key, '{}'));
    const earlier = expectAccepted(await send());
    /** Drops the next reply, cuts the connection, and lets there be another one when something has been done. */
    const dropReply = (act: () => Promise<unknown>) => {
      meanwhile = act;
    };
    return { store: direct, prefix, send, earlier, dropReply };
  }

  test.each<[string, (direct: Store) => Promise<unknown>]>([
    ['is still right', async () => undefined],
    ['was revoked meanwhile', (direct) => direct.automations.rotateKey('own', 0)],
    ['is right, in a Redis that is full by then', (direct) => direct.redis.config('SET', 'maxmemory', 1)],
  ])('a run whose reply was lost is made once, and answered 202, when its key %s', async (_, change) => {
    const { store: direct, send, earlier, dropReply } = await openApp();
    const changed = vi.fn(() => change(direct));
    dropReply(changed);
    const runId = expectAccepted(await send());
    expect(changed).toHaveBeenCalledOnce();
    await direct.redis.config('SET', 'maxmemory', 0);
    expect((await direct.runs.list({ limit: 10 })).map(({ id }) => id)).toEqual([runId, earlier]);
    expect(await direct.runs.countQueued()).toBe(2);
  });

  test('a run whose reply was lost, and that has ended since, is not listed as open again', async () => {
    const { store: direct, prefix, send, dropReply } = await openApp();
    const forWorker = connectStore(privateRedis.url, 'patient', prefix);
    onTestFinished(() => forWorker.close());
    const ended = vi.fn(async () => {
      const openRuns = () => direct.redis.zcard(direct.keys.openRuns('own'));
      expect(await openRuns()).toBe(2);
      startConsumer(forWorker, async () => SUCCEEDED);
      await expect.poll(openRuns, { timeout: 20_000, interval: 10 }).toBe(0);
    });
    dropReply(ended);
    const runId = expectAccepted(await send());
    expect(ended).toHaveBeenCalledOnce();
    expect(await direct.runs.get(runId)).toMatchObject({ status: 'succeeded' });
    expect(await direct.redis.zrange(direct.keys.openRuns('own'), 0, '-1')).toEqual([]);
  });

  test('without memory is a 503 that is certain for a right key, and a 401 for one that was revoked', async () => {
    const { store: direct, send } = await openApp();
    const withoutMemory = async () => {
      await direct.redis.config('SET', 'maxmemory', 1);
      const answer = await send();
      await direct.redis.config('SET', 'maxmemory', 0);
      return answer;
    };
    const before = await everything(direct);
    const { message } = expectError(await withoutMemory(), 503, 'queue_unavailable');
    expect(message).not.toMatch(/may have been accepted/);
    expect(await everything(direct)).toEqual(before);
    await direct.automations.rotateKey('own', 0);
    expectError(await withoutMemory(), 401, 'invalid_api_key');
  });
});
