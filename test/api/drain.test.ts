import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { Connections } from '../../src/api/connections.ts';
import { Drain } from '../../src/api/drain.ts';
import { ApiServer } from '../../src/api/server.ts';
import { RawConnection } from '../support/raw-http.ts';

const GRACE_MS = 60_000;
const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

/** A server whose answers a test gives, and what shuts it down. */
async function listen() {
  const waiting: ServerResponse[] = [];
  const server = new ApiServer({}, (_request, response) => void waiting.push(response));
  const connections = new Connections();
  connections.attach(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const nextResponse = async () => {
    await expect.poll(() => waiting.length, { interval: 1 }).toBeGreaterThan(0);
    return waiting.shift() ?? expect.fail('no request');
  };
  const shutDown = () => {
    const end = new Drain(server, connections).start(GRACE_MS);
    onTestFinished(end);
    return new Promise((resolve) => server.close(resolve));
  };
  /** A connection that has served a request. */
  const openUsed = async () => {
    const connection = await RawConnection.open({ server, listen: async () => '' });
    connection.write(GET);
    (await nextResponse()).end('first');
    expect(await connection.nextAnswer()).toMatchObject({ body: 'first' });
    return connection;
  };
  onTestFinished(() => server.closeAllConnections());
  return { nextResponse, shutDown, openUsed };
}

test('a request that was read is answered, however long that takes, and idle connections are closed', async () => {
  const { nextResponse, shutDown, openUsed } = await listen();
  const [busy, idle] = [await openUsed(), await openUsed()];
  busy.write(GET);
  const response = await nextResponse();
  const closed = shutDown();
  expect(await idle.nextAnswer()).toBeUndefined();
  expect(idle.end).toBe('closed');
  response.end('late');
  expect(await busy.nextAnswer()).toMatchObject({ statusCode: 200, body: 'late' });
  await closed;
  expect(await busy.nextAnswer()).toBeUndefined();
  expect(busy.end).toBe('closed');
});

test('a request whose connection was between two requests is answered', async () => {
  const { nextResponse, shutDown, openUsed } = await listen();
  const connection = await openUsed();
  const closed = shutDown();
  connection.write(GET);
  (await nextResponse()).end('second');
  expect(await connection.nextAnswer()).toMatchObject({ body: 'second' });
  expect(await connection.nextAnswer()).toBeUndefined();
  expect(connection.end).toBe('closed');
  await closed;
});

test('requests that came together are all answered', async () => {
  const { nextResponse, shutDown, openUsed } = await listen();
  const connection = await openUsed();
  connection.write(GET.repeat(2));
  const responses = [await nextResponse(), await nextResponse()];
  const closed = shutDown();
  for (const response of responses.toReversed()) response.end('together');
  for (const _ of responses) expect(await connection.nextAnswer()).toMatchObject({ body: 'together' });
  await closed;
  expect(connection.end).toBe('closed');
});
