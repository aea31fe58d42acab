import { beforeAll, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { expectError, openTestApp, trigger } from '../support/app.ts';
import { createAutomation } from '../support/store.ts';

const { app, store } = openTestApp({ trustedProxies: ['127.0.0.1'] });
let apiKey: string;

/** As many failures as an address has in a minute. */
const ALLOWANCE = 100;

beforeAll(async () => {
  apiKey = await createAutomation(store, 'guarded');
});

/** A trigger request as a proxy passes it on. */
function from(address: string, key: string | undefined) {
  return app.inject(trigger('guarded', key, '{}', { 'x-forwarded-for': address }));
}

async function fail(address: string, times: number): Promise<void> {
  for (let failed = 0; failed < times; failed += 1) {
    const key = [undefined, 'nonsense', mintApiKey()][failed % 3];
    expect((await from(address, key)).statusCode).toBe(401);
  }
}

test('an address that fails too often is told to wait, whatever is wrong with its keys', async () => {
  await fail('192.0.2.1', ALLOWANCE);
  for (const key of [undefined, 'nonsense', mintApiKey()]) {
    const refused = await from('192.0.2.1', key);
    expectError(refused, 429, 'too_many_failures');
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(60);
  }
});

test('a valid key is accepted from an address that fails too often', async () => {
  await fail('192.0.2.2', ALLOWANCE);
  expect((await from('192.0.2.2', mintApiKey())).statusCode).toBe(429);
  expect((await from('192.0.2.2', apiKey)).statusCode).toBe(202);
});

test('addresses do not answer for each other, but those of one IPv6 network do', async () => {
  await fail('2001:db8:0:1::1', ALLOWANCE);
  expect((await from('2001:db8:0:1:ffff::2', mintApiKey())).statusCode).toBe(429);
  expect((await from('2001:db8:0:2::1', mintApiKey())).statusCode).toBe(401);
});

test('an address counts as the same one in whichever form it comes', async () => {
  await fail('192.0.2.4', ALLOWANCE);
  for (const same of ['::ffff:192.0.2.4', '::FFFF:192.0.2.4'])
    expect((await from(same, undefined)).statusCode).toBe(429);
  expect((await from('192.0.2.40', undefined)).statusCode).toBe(401);
});

test('whatever a proxy passes on that is no address counts as one', async () => {
  await fail('unknown', ALLOWANCE);
  for (const other of ['_hidden', '192.0.2.300', '192.0.2.9:80', 'x'.repeat(10_000)])
    expect((await from(other, undefined)).statusCode).toBe(429);
});

test('health and pages count as no failure and are never refused', async () => {
  await fail('192.0.2.3', ALLOWANCE);
  const headers = { 'x-forwarded-for': '192.0.2.3' };
  expect((await app.inject({ url: '/orc/health', headers })).statusCode).toBe(200);
  expect((await app.inject({ url: '/llms.txt', headers })).statusCode).toBe(200);
});

test('without a trusted proxy, an address that a client claims for itself counts for nothing', async () => {
  const direct = { remoteAddress: '192.0.2.50' };
  for (let failed = 0; failed <= ALLOWANCE; failed += 1) {
    const claimed = { 'x-forwarded-for': `198.51.100.${failed}` };
    await app.inject({ ...trigger('guarded', mintApiKey(), '{}', claimed), ...direct });
  }
  const last = await app.inject({ ...trigger('guarded', mintApiKey(), '{}'), ...direct });
  expectError(last, 429, 'too_many_failures');
});
