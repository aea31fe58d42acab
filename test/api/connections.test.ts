import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, onTestFinished, test } from 'vitest';
import { Connections } from '../../src/api/connections.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

test.each([
  ['one request', 'GET / HTTP/1.1\r\nhost: a\r\n\r\n', 1],
  ['requests that came together', 'GET / HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(3), 3],
  ['a request with a body', 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody', 1],
])('a connection that stays open keeps nothing of %s, once answered', async (_, requests, count) => {
  const connections = new Connections();
  const responses: WeakRef<ServerResponse>[] = [];
  const server = createServer((request, response) => {
    responses.push(new WeakRef(response));
    request.resume().on('end', () => response.end('done'));
  });
  connections.attach(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  onTestFinished(() => {
    client.destroy();
    server.close();
  });
  client.write(requests);
  let answers = '';
  client.on('data', (chunk: Buffer) => {
    answers += String(chunk);
  });
  await expect.poll(() => answers.match(/done/g)?.length).toBe(count);
  await expect
    .poll(() => {
      collectGarbage();
      return responses.map((response) => response.deref());
    })
    .toEqual(Array.from({ length: count }, () => undefined));
  expect([...connections]).toHaveLength(1);
});
