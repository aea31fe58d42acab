import dns, { type LookupAddress } from 'node:dns';
import { connect } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { startApi } from '../../src/api/start-api.ts';
import { readConfig } from '../../src/config.ts';
import { createLogger } from '../../src/logger.ts';
import { expectError } from '../support/app.ts';
import { RawConnection } from '../support/raw-http.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const GRACE_MS = 60_000;

const store = openTestStore();

async function start(env: NodeJS.ProcessEnv = {}) {
  const config = readConfig({ PORT: '0', ...store.env, ...env });
  const api = await startApi(config, String(config.REDIS_URL), createLogger('silent', 'api'));
  onTestFinished(() => api.close(0));
  return { ...api, port: Number(new URL(api.url).port) };
}

/** A connection that has served a request, so that the server knows it. */
async function openUsed(port: number): Promise<RawConnection> {
  const connection = await RawConnection.to(port);
  connection.write('GET /orc/health HTTP/1.1\r\nHost: a\r\n\r\n');
  expect(await connection.nextAnswer()).toMatchObject({ statusCode: 200 });
  return connection;
}

/** Why a connection is refused; undefined when it is not. */
function refusalOf(port: number, host: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, host, () => {
      socket.destroy();
      resolve(undefined);
    });
    socket.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code));
  });
}

test('localhost is one server, of which shutdown knows every connection', async () => {
  const addresses: LookupAddress[] = ['127.0.0.1', '127.0.0.2'].map((address) => ({ address, family: 4 }));
  const lookup = vi.spyOn(dns, 'lookup') as unknown as ReturnType<typeof vi.fn>;
  lookup.mockImplementation((host: string, ...rest: unknown[]) => {
    const done = rest.at(-1) as (...found: unknown[]) => void;
    // With options it is asked for all addresses.
    if (rest.length > 1) done(null, addresses);
    else done(null, host === 'localhost' ? '127.0.0.1' : host, 4);
  });
  onTestFinished(() => lookup.mockRestore());
  const { url, port } = await start({ HOST: 'localhost' });
  expect(url).toBe(`http://127.0.0.1:${port}`);
  expect(await refusalOf(port, '127.0.0.1')).toBeUndefined();
  expect(await refusalOf(port, '127.0.0.2')).toBe('ECONNREFUSED');
});

test.each([
  ['in its request line', 'GET /orc/he'],
  ['in its headers', 'POST /orc/api/automation-triggers/stalls HTTP/1.1\r\nHost: a\r\nX-'],
])('a client that stalls %s during shutdown is answered 408', async (_, begun) => {
  const { close, port } = await start();
  const [stalled, first] = [await openUsed(port), await RawConnection.to(port)];
  for (const connection of [stalled, first]) connection.write(begun);
  const closed = close(GRACE_MS);
  for (const connection of [stalled, first]) {
    expectError((await connection.nextAnswer()) ?? expect.fail('no answer'), 408, 'request_timeout');
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('closed');
  }
  await closed;
});

test('a client that stalls in its body during shutdown is answered 408, and nothing is run', async () => {
  const apiKey = await createAutomation(store, 'stalls');
  const { close, port } = await start();
  const connection = await openUsed(port);
  connection.write(
    `POST /orc/api/automation-triggers/stalls HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${apiKey}\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n{}`,
  );
  const closed = close(GRACE_MS);
  expectError((await connection.nextAnswer()) ?? expect.fail('no answer'), 408, 'request_timeout');
  expect(await connection.nextAnswer()).toBeUndefined();
  await closed;
  expect(await store.runs.countQueued()).toBe(0);
});

test('a client that is still sending its request when the time for shutdown is nearly over is answered 408', async () => {
  const { close, port } = await start();
  const connection = await openUsed(port);
  connection.write('GET /orc/health HTTP/1.1\r\n');
  const sending = setInterval(() => connection.write('X: slow\r\n'), 10);
  const closed = close(500);
  const answer = await connection.nextAnswer();
  clearInterval(sending);
  expectError(answer ?? expect.fail('no answer'), 408, 'request_timeout');
  expect(await connection.nextAnswer()).toBeUndefined();
  expect(connection.end).toBe('closed');
  await closed;
});

test('a connection between two requests is closed during shutdown without another word', async () => {
  const { close, port } = await start();
  const [idle, refused] = [await openUsed(port), await openUsed(port)];
  // Its answer came before its body.
  refused.write('POST /orc/api/automation-triggers/refused HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n');
  expect(await refused.nextAnswer()).toMatchObject({ statusCode: 401 });
  refused.write('{}');
  const closed = close(GRACE_MS);
  for (const connection of [idle, refused]) {
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('closed');
  }
  await closed;
});

test('of requests that come in one packet during shutdown, no other ones are run than are answered', async () => {
  const apiKey = await createAutomation(store, 'pipelined');
  const { close, port } = await start();
  const connection = await openUsed(port);
  const closed = close(GRACE_MS);
  await expect.poll(() => refusalOf(port, '127.0.0.1'), { interval: 1 }).toBe('ECONNREFUSED');
  const request = `POST /orc/api/automation-triggers/pipelined HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${apiKey}\r\n\r\n`;
  connection.write(request.repeat(3));
  const answer = await connection.nextAnswer();
  expect(answer).toMatchObject({ statusCode: 202, headers: { connection: 'close' } });
  expect(await connection.nextAnswer()).toBeUndefined();
  expect(connection.end).toBe('closed');
  await closed;
  expect(await store.runs.countQueued()).toBe(1);
});
