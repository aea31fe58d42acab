import { beforeAll, describe, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { expectError, openTestApp, trigger } from '../support/app.ts';
import { memoryLogger } from '../support/memory-logger.ts';
import { listenRaw, RawConnection } from '../support/raw-http.ts';
import { createAutomation } from '../support/store.ts';

/** As many failures as an address has in a minute. */
const ALLOWANCE = 100;

/** Lines of one kind that a second may have. */
const LINES_PER_SECOND = 100;

/** A trigger request as it goes over the wire. */
function post(apiKey: string, body = '{}', headers = ''): string {
  const head = `POST /orc/api/automation-triggers/hung-up HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${apiKey}\r\n`;
  return `${head}${headers}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

describe.each([
  ['directly', [], ''],
  ['through a proxy', ['127.0.0.1'], 'X-Forwarded-For: 192.0.2.1\r\n'],
])('a client that resets its connection, %s,', (_, trustedProxies, headers) => {
  const log = memoryLogger();
  const { app, store } = openTestApp({ trustedProxies }, { logger: log.logger });
  listenRaw(app);
  let key = '';
  beforeAll(async () => {
    key = await createAutomation(store, 'hung-up');
  });

  /** Sends bytes over a connection of their own, and resets it without waiting for anything. */
  async function reset(bytes: string): Promise<void> {
    const closed = new Promise((resolve) => {
      app.server.once('connection', (socket) => socket.once('close', resolve));
    });
    const connection = await RawConnection.open(app);
    await connection.writeUnread(bytes);
    connection.reset();
    await closed;
  }

  /** Lines about failures of the service. */
  const failures = (since = 0) =>
    log.text.slice(since).filter((line) => /"level":"error"|internal_error|"statusCode":5/.test(line));

  test('is throttled like any other, is no failure of the service, and has no more lines than others', async () => {
    const count = 3 * ALLOWANCE;
    const startedAt = performance.now();
    const flood = () => Array.from({ length: 20 }, () => post(mintApiKey(), '{}', headers)).join('');
    for (let sent = 0; sent < count; sent += 1) await reset(flood());
    const seconds = Math.ceil((performance.now() - startedAt) / 1000);
    const from = trigger('hung-up', mintApiKey(), '{}', { 'x-forwarded-for': '192.0.2.1' });
    expectError(await app.inject(from), 429, 'too_many_failures');
    expect(failures()).toEqual([]);
    expect(log.text.length).toBeLessThanOrEqual(2 * LINES_PER_SECOND * (seconds + 1));
    expect((await store.rejections.read('hung-up')).map(({ error }) => error)).not.toContain(
      'internal_error',
    );
  });

  test.each([
    ['in its request line', () => 'POST /orc/api/auto'],
    ['in its headers', () => post(key).slice(0, 60)],
    ['in its body', () => post(key, '{"a":1}').slice(0, -3)],
    ['behind a page', () => `GET /docs HTTP/1.1\r\nHost: a\r\n${headers}\r\n`],
    ['behind no HTTP', () => 'hello\r\n\r\n'],
    ['behind its request', () => post(key)],
  ])('%s is no failure of the service', async (_place, bytes) => {
    const before = log.text.length;
    for (let sent = 0; sent < 20; sent += 1) await reset(bytes());
    expect((await app.inject(trigger('hung-up', key, '{}'))).statusCode).toBe(202);
    expect(failures(before)).toEqual([]);
  });
});
