import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Chance } from './chance.ts';
import type { History, Mark } from './history.ts';

/** The first delivery of each run to this path is answered 500. */
export const FLAKY = 'flaky';

/** Deliveries to this path are answered in all the ways in which HTTP can be got wrong. */
export const HOSTILE = 'hostile';

/** Events are sent to this path. */
export const EVENTS = 'events';

/** Share of events that are not accepted at first. */
const REFUSED_EVENTS = 0.01;

const UPGRADE = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n';

/** Each leaves the connection as it is unless it says otherwise. */
const HOSTILE_ANSWERS: readonly ((socket: Socket) => void)[] = [
  (socket) => socket.write(UPGRADE),
  (socket) => socket.end(UPGRADE),
  () => undefined,
  (socket) => socket.end(),
  (socket) => socket.end('HTTP/1.1 20'),
  (socket) => void socket.resetAndDestroy(),
  (socket) => repeat(socket, '', 'HTTP/1.1 103 Early Hints\r\n\r\n'),
  (socket) => repeat(socket, 'HTTP/1.1 200 OK\r\n', 'x: y\r\n'),
  (socket) => repeat(socket, 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', '1\r\nx\r\n'),
  (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx'),
  (socket) => socket.write('SSH-2.0-server\r\n'),
];

/** Between two pieces of an answer that does not end, in milliseconds. */
const PIECE_MS = 20;

/** A delivery is answered after up to this long, in milliseconds. */
const LONGEST_ANSWER_MS = 40;

/** What automations deliver to: notes each delivery from its first byte until it is answered or hung up. */
export class Receiver {
  readonly #server: Server;
  readonly #history: History;
  readonly #chance: Chance;
  readonly #failedOnce = new Set<string>();
  #deliveries = 0;

  private constructor(history: History, chance: Chance) {
    this.#history = history;
    this.#chance = chance;
    this.#server = createServer((request, response) => void this.#receive(request, response));
    this.#server.keepAliveTimeout = 60_000;
  }

  static async listen(history: History, chance: Chance): Promise<Receiver> {
    const receiver = new Receiver(history, chance);
    receiver.#server.listen(0, '127.0.0.1');
    await once(receiver.#server, 'listening');
    return receiver;
  }

  urlOf(slug: string): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/${slug}`;
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const slug = request.url?.slice(1) ?? '';
    if (slug === EVENTS) return this.#receiveEvent(request, response);
    const runId = String(request.headers['webhook-id']);
    this.#deliveries += 1;
    const execution = `delivery ${this.#deliveries}`;
    const start: Mark = { slug, runId, execution, sign: 'start', at: Date.now() };
    this.#history.deliveries.push(start);
    let hasEnded = false;
    const end = () => {
      if (hasEnded) return;
      hasEnded = true;
      this.#history.deliveries.push({ slug, runId, execution, sign: 'end', at: Date.now() });
    };
    response.once('close', end);
    const chunks: Buffer[] = [];
    request.on('error', end).on('data', (chunk: Buffer) => chunks.push(chunk));
    const isComplete = await once(request, 'end').catch(() => undefined);
    if (!isComplete) return;
    start.payload = Buffer.concat(chunks).toString();
    await sleep(this.#chance.between(0, LONGEST_ANSWER_MS));
    if (slug === HOSTILE) {
      request.socket.once('close', end);
      return this.#chance.pick(HOSTILE_ANSWERS)(request.socket);
    }
    // Before the answer is on its way, so that what follows it is noted after this.
    end();
    response.writeHead(this.#isToFail(slug, runId) ? 500 : 204).end();
  }

  async #receiveEvent(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    request.on('error', () => undefined).on('data', (chunk: Buffer) => chunks.push(chunk));
    if (!(await once(request, 'end').catch(() => undefined))) return;
    if (this.#chance.is(REFUSED_EVENTS)) return void response.writeHead(503).end();
    const id = String(request.headers['webhook-id']);
    const body = Buffer.concat(chunks).toString();
    try {
      const event = JSON.parse(body) as { data: { run: { runId: string } } };
      this.#history.eventReceived(event.data.run.runId, id);
    } catch {
      this.#history.incidents.push({
        kind: 'wrong event',
        message: `${id} came with the body ${JSON.stringify(body)}`,
      });
    }
    response.writeHead(204).end();
  }

  #isToFail(slug: string, runId: string): boolean {
    if (slug !== FLAKY || this.#failedOnce.has(runId)) return false;
    this.#failedOnce.add(runId);
    return true;
  }
}

function repeat(socket: Socket, first: string, more: string): void {
  socket.write(first);
  const timer = setInterval(() => socket.write(more), PIECE_MS);
  socket.once('close', () => clearInterval(timer));
}
