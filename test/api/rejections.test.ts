import { expect, onTestFinished, test } from 'vitest';
import { RejectionTally } from '../../src/api/rejection-tally.ts';
import { startApi } from '../../src/api/start-api.ts';
import { readConfig } from '../../src/config.ts';
import { mintApiKey } from '../../src/core/api-key.ts';
import { createLogger } from '../../src/logger.ts';
import { postTrigger } from '../support/http.ts';
import { runOrc } from '../support/orc.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const store = openTestStore();

async function start() {
  const config = readConfig({ PORT: '0', BODY_LIMIT_BYTES: '100', ...store.env });
  const api = await startApi(config, String(config.REDIS_URL), createLogger('silent', 'api'));
  onTestFinished(() => api.close(0));
  return api;
}

async function counts(slug: string): Promise<Record<string, number>> {
  return Object.fromEntries((await store.rejections.read(slug)).map(({ error, count }) => [error, count]));
}

async function rejectionKeys(): Promise<string[]> {
  return store.redis.keys(`${store.keys.rejections('')}*`);
}

test('why requests for an automation were refused is counted, and shown with the latest reason first', async () => {
  const key = await createAutomation(store, 'refused', { rate: { limit: 1, windowMs: 3_600_000 } });
  const { url, close } = await start();
  for (let count = 0; count < 3; count++) await postTrigger(url, 'refused', mintApiKey());
  await postTrigger(url, 'refused', 'not a key');
  await postTrigger(url, 'refused', key, '[]');
  await postTrigger(url, 'refused', key, `{"a":"${'x'.repeat(100)}"}`);
  await postTrigger(url, 'refused', key);
  await postTrigger(url, 'refused', key);
  await store.automations.setEnabled('refused', false);
  await postTrigger(url, 'refused', key);
  await close(0);

  expect(await counts('refused')).toEqual({
    invalid_api_key: 4,
    invalid_payload: 1,
    payload_too_large: 1,
    rate_limited: 1,
    automation_disabled: 1,
  });
  const [json, text] = await Promise.all([
    runOrc(['automations', 'show', 'refused', '--json'], { env: store.env }),
    runOrc(['automations', 'show', 'refused'], { env: store.env }),
  ]);
  const { rejections } = JSON.parse(json.stdout);
  expect(rejections[0]).toEqual({ error: 'automation_disabled', count: 1, lastAt: expect.any(String) });
  expect(rejections).toHaveLength(5);
  expect(text.stdout).toMatch(/^rejected +1 automation_disabled, last at 20\S+Z\n +1 rate_limited, /m);
  expect(text.stdout).toMatch(/^ +4 invalid_api_key, last at /m);
});

test('it is stored while the API goes on, and shown as nothing before', async () => {
  await createAutomation(store, 'goes-on');
  const { stdout } = await runOrc(['automations', 'show', 'goes-on'], { env: store.env });
  expect(stdout).toMatch(/^rejected +no request$/m);
  const { url } = await start();
  await postTrigger(url, 'goes-on', mintApiKey());
  await expect.poll(() => counts('goes-on'), { timeout: 10_000 }).toEqual({ invalid_api_key: 1 });
  await postTrigger(url, 'goes-on', mintApiKey());
  await expect.poll(() => counts('goes-on'), { timeout: 10_000 }).toEqual({ invalid_api_key: 2 });
});

test('slugs that do not exist or are none leave nothing but one count for all of them', async () => {
  const before = (await counts(''))['invalid_api_key'] ?? 0;
  const keysBefore = new Set(await rejectionKeys());
  const { url, close } = await start();
  await postTrigger(url, 'invented', mintApiKey());
  await postTrigger(url, 'invented-too', mintApiKey());
  await postTrigger(url, 'No-Slug', mintApiKey());
  await close(0);
  const added = (await rejectionKeys()).filter((name) => !keysBefore.has(name));
  expect(added.filter((name) => name !== store.keys.rejections(''))).toEqual([]);
  expect(await counts('')).toMatchObject({ invalid_api_key: before + 2 });
});

test('a flood of invented slugs takes a bounded place, and none from automations whose key was right', async () => {
  await createAutomation(store, 'flooded');
  const tally = new RejectionTally(store);
  const before = (await counts(''))['invalid_api_key'] ?? 0;
  for (let number = 0; number < 5000; number++) tally.count(`invented-${number}`, 'invalid_api_key', false);
  tally.count('flooded', 'invalid_json', true);
  await tally.close();
  expect(await counts('flooded')).toEqual({ invalid_json: 1 });
  expect((await counts(''))['invalid_api_key']).toBe(before + 1000);
});

test('the counts go with their automation', async () => {
  await createAutomation(store, 'deleted');
  const tally = new RejectionTally(store);
  tally.count('deleted', 'invalid_json', true);
  await tally.close();
  expect(await counts('deleted')).toEqual({ invalid_json: 1 });
  await store.automations.delete('deleted');
  await createAutomation(store, 'deleted');
  expect(await counts('deleted')).toEqual({});
});

test('the rejected requests of the last hour are counted, those of the hour before in part', async () => {
  const HOUR_MS = 3_600_000;
  await createAutomation(store, 'lately');
  const add = (count: number) =>
    store.rejections.add(new Map([['lately', new Map([['rate_limited', { count, lastAt: 0 }]])]]));
  const lately = async (now: number) => (await store.rejections.countLately(['lately', 'unknown'], now))[0];
  const hour = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  await add(4);
  await add(6);
  expect(await lately(hour + HOUR_MS - 1)).toBe(10);
  expect(await lately(hour + HOUR_MS * 1.5)).toBe(5);
  expect(await lately(hour + HOUR_MS * 2)).toBe(0);
  const earlier = hour / HOUR_MS - 1;
  await store.redis.hset(store.keys.rejections('lately'), 'lately:at', `${earlier} 100 7`);
  await add(1);
  expect(await lately(hour)).toBe(101);
  expect(await lately(hour + HOUR_MS * 0.5)).toBe(51);
  expect(await counts('lately')).toEqual({ rate_limited: 11 });
});
