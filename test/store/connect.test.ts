import { once } from 'node:events';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import {
  type ConnectionProfile,
  connect,
  outageReporter,
  type RedisClient,
  untilReady,
  withoutPassword,
} from '../../src/store/connect.ts';
import { openPrivateRedis } from '../support/private-redis.ts';

const server = await openPrivateRedis();

afterEach(() => server.stop());

function open(profile: ConnectionProfile): { redis: RedisClient; errors: Error[] } {
  const errors: Error[] = [];
  const redis = connect(server.url, profile, (error) => errors.push(error));
  onTestFinished(() => redis.disconnect());
  return { redis, errors };
}

describe('while Redis is absent', () => {
  test('a fail-fast connection refuses commands, and works once Redis is there', async () => {
    const { redis, errors } = open('fail-fast');
    await expect(redis.ping()).rejects.toThrow();
    await expect.poll(() => errors.length).toBeGreaterThan(0);
    await server.start();
    await expect.poll(() => redis.ping().catch(String), { timeout: 20_000 }).toBe('PONG');
  });

  test('a patient connection keeps commands until Redis is there', async () => {
    const { redis, errors } = open('patient');
    const pong = redis.ping();
    await expect.poll(() => errors.length).toBeGreaterThan(1);
    await server.start();
    expect(await pong).toBe('PONG');
  });

  test('a connection for one shot fails its commands and does not try again', async () => {
    const { redis, errors } = open('one-shot');
    await expect(redis.ping()).rejects.toThrow();
    expect(redis.status).toBe('end');
    expect(errors).toHaveLength(1);
    await expect(redis.ping()).rejects.toThrow();
  });
});

test('commands that Redis does not answer any more fail on a fail-fast connection', async () => {
  await server.start();
  const { redis } = open('fail-fast');
  await untilReady(redis, 20_000);
  const blocked = redis.blpop('nothing', 0);
  await server.kill();
  await expect(blocked).rejects.toThrow();
});

describe('when the server has become a replica', () => {
  async function demote(): Promise<RedisClient> {
    await server.start();
    const { redis: admin } = open('patient');
    await admin.call('REPLICAOF', '127.0.0.1', '1');
    return admin;
  }

  test('a fail-fast connection refuses a write and connects anew', async () => {
    const { redis } = open('fail-fast');
    await demote();
    await untilReady(redis, 20_000);
    const closed = once(redis, 'close');
    await expect(redis.set('any', 'value')).rejects.toThrow('READONLY');
    await closed;
  });

  test('a patient connection writes once the server is a master again', async () => {
    const { redis } = open('patient');
    const admin = await demote();
    await untilReady(redis, 20_000);
    const closed = once(redis, 'close');
    const written = redis.eval("return redis.call('SET', KEYS[1], 'value')", 1, 'any');
    await closed;
    await admin.call('REPLICAOF', 'NO', 'ONE');
    expect(await written).toBe('OK');
  });
});

describe('untilReady', () => {
  test('waits until the connection is there', async () => {
    await server.start();
    const { redis } = open('fail-fast');
    await untilReady(redis, 20_000);
    expect(redis.status).toBe('ready');
    await untilReady(redis, 20_000);
  });

  test('gives up when its time is over', async () => {
    const { redis } = open('fail-fast');
    await untilReady(redis, 10);
    expect(redis.status).not.toBe('ready');
  });
});

test('an outage is reported once when it begins and once when it ends, each time there is one', async () => {
  const reports: string[] = [];
  const reporter = outageReporter({ down: () => reports.push('down'), up: () => reports.push('up') });
  let errors = 0;
  const redis = connect(server.url, 'fail-fast', (error) => {
    errors += 1;
    reporter.onError(error);
  });
  reporter.watch(redis);
  onTestFinished(() => redis.disconnect());

  for (const expected of [
    ['down', 'up'],
    ['down', 'up', 'down', 'up'],
  ]) {
    const before = errors;
    await expect.poll(() => errors, { timeout: 20_000 }).toBeGreaterThan(before + 2);
    expect(reports).toEqual(expected.slice(0, -1));
    await server.start();
    await expect.poll(() => reports, { timeout: 20_000 }).toEqual(expected);
    await server.stop();
  }
});

test('a connection that works from the start is no end of an outage', async () => {
  await server.start();
  const reports: string[] = [];
  const reporter = outageReporter({ down: () => reports.push('down'), up: () => reports.push('up') });
  const redis = connect(server.url, 'fail-fast', reporter.onError);
  reporter.watch(redis);
  onTestFinished(() => redis.disconnect());
  await untilReady(redis, 20_000);
  expect(await redis.ping()).toBe('PONG');
  expect(reports).toEqual([]);
});

test.each([
  ['redis://:secret@cache:6379/0', 'redis://***@cache:6379/0'],
  ['rediss://user:secret@cache', 'rediss://***@cache'],
  ['redis://user:se@cret@cache', 'redis://***@cache'],
  ['redis://cache:6379', 'redis://cache:6379'],
  ['unix://user:secret@/run/redis.sock?db=1', 'unix://***@/run/redis.sock?db=1'],
  ['rediss+cluster://user:secret@a:1,b:2', 'rediss+cluster://***@a:1,b:2'],
  [
    'redis+sentinel://u:secret@a,b/main/0?sentinel_username=s&sentinel_password=se@cr+et',
    'redis+sentinel://***@a,b/main/0?sentinel_username=s&sentinel_password=***',
  ],
  ['/run/redis@1/redis.sock', '/run/redis@1/redis.sock'],
])('%s is shown as %s', (url, shown) => {
  expect(withoutPassword(url)).toBe(shown);
});
