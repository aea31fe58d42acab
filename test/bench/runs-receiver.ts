import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Answers 204 to everything, in a process of its own. It sends {@link ReceiverReady}, and ends with its parent. */
export interface ReceiverReady {
  url: string;
  /** What is delivered here is answered with a result instead. */
  resultUrl: string;
}

const server = createServer((delivery, response) => {
  const hasResult = delivery.url === '/result';
  delivery.resume().on('end', () => {
    if (hasResult) response.setHeader('content-type', 'application/json').end('{"ok":true}');
    else response.writeHead(204).end();
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1');
await once(server, 'listening');
process.once('disconnect', () => process.exit());
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
process.send?.({
  url,
  resultUrl: `${url}result`,
} satisfies ReceiverReady);
