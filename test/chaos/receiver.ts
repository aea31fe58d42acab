import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Chance } from './chance.ts';
import type { History, Mark } from './history.ts';

/** The first delivery of each run to this path is answered 500. */
export const FLAKY = 'flaky';

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
    // Before the answer is on its way, so that what follows it is noted after this.
    end();
    response.writeHead(this.#isToFail(slug, runId) ? 500 : 204).end();
  }

  #isToFail(slug: string, runId: string): boolean {
    if (slug !== FLAKY || this.#failedOnce.has(runId)) return false;
    this.#failedOnce.add(runId);
    return true;
  }
}
