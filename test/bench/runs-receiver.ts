import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Answers 204 to everything, in a process of its own. It sends {@link ReceiverReady}, and ends with its parent. */
export interface ReceiverReady {
  url: string;
}

const server = createServer((delivery, response) => {
  delivery.resume().on('end', () => response.writeHead(204).end());
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1');
await once(server, 'listening');
process.once('disconnect', () => process.exit());
process.send?.({
  url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
} satisfies ReceiverReady);
