import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { constants, openSync } from 'node:fs';
import { Agent, createServer, type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { withDeadline } from '../../src/core/deadline.ts';
import { type Api, PAYLOAD, type Target } from './runs-stage.ts';

/** What has not arrived by then will not, in milliseconds. */
const ARRIVAL_MS = 60_000;

const agent = new Agent({ keepAlive: true });

/** A trigger as its client saw it. Times are those of `performance.now()` in this process. */
export interface Triggered {
  runId: string;
  sentAt: number;
  /** When the head of the 202 was read. */
  acceptedAt: number;
}

/** Triggers an automation once. @throws when the answer is another one than 202 */
export async function trigger({ url }: Api, { slug, apiKey }: Target): Promise<Triggered> {
  const sentAt = performance.now();
  const response = await post(`${url}/orc/api/automation-triggers/${slug}`, { 'x-api-key': apiKey });
  const acceptedAt = performance.now();
  const body = (await response.toArray()).join('');
  if (response.statusCode !== 202) throw new Error(`a trigger was answered ${response.statusCode}: ${body}`);
  const { runId } = JSON.parse(body) as { runId: string };
  return { runId, sentAt, acceptedAt };
}

/** POSTs the payload on a connection that is kept. @returns the answer when its head has been read */
export async function post(url: string, headers: OutgoingHttpHeaders): Promise<IncomingMessage> {
  const sent = request(url, {
    method: 'POST',
    agent,
    headers: { 'content-type': 'application/json', 'content-length': PAYLOAD.length, ...headers },
  });
  sent.end(PAYLOAD);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return response;
}

/** A URL in this process, which notes when each delivery arrives. */
export class Receiver {
  readonly url: string;
  readonly #arrivals: Map<string, Arrival>;

  private constructor(url: string, arrivals: Map<string, Arrival>) {
    this.url = url;
    this.#arrivals = arrivals;
  }

  static async listen(defer: (undo: () => unknown) => void): Promise<Receiver> {
    const arrivals = new Map<string, Arrival>();
    const server = createServer((delivery, response) => {
      arrivalOf(arrivals, String(delivery.headers['webhook-id'])).arrived(performance.now());
      delivery.resume().on('end', () => response.writeHead(204).end());
    });
    server.keepAliveTimeout = 60_000;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    defer(() => {
      server.close();
      server.closeAllConnections();
    });
    return new Receiver(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`, arrivals);
  }

  /** When the first bytes of this run's delivery were read, by `performance.now()`; asked once for each run. */
  async arrival(runId: string): Promise<number> {
    const at = await withDeadline(arrivalOf(this.#arrivals, runId).at, ARRIVAL_MS);
    this.#arrivals.delete(runId);
    return at;
  }
}

interface Arrival {
  at: Promise<number>;
  arrived(at: number): void;
}

/** A delivery may come before its run is asked for. */
function arrivalOf(arrivals: Map<string, Arrival>, runId: string): Arrival {
  const known = arrivals.get(runId);
  if (known) return known;
  let arrived: (at: number) => void = () => undefined;
  const at = new Promise<number>((resolve) => {
    arrived = resolve;
  });
  const arrival = { at, arrived };
  arrivals.set(runId, arrival);
  return arrival;
}

/**
 * A named pipe into which a command writes the first byte that it reads, so that this process tells the time of it. One
 * command at a time.
 */
export class FirstByte {
  /** Reads one byte from standard input and writes it into the pipe. */
  readonly argv: string[];
  readonly #pipe: Socket;

  private constructor(path: string, pipe: Socket) {
    this.argv = ['dd', 'bs=1', 'count=1', 'status=none', 'conv=notrunc', `of=${path}`];
    this.#pipe = pipe;
  }

  static async open(path: string, defer: (undo: () => unknown) => void): Promise<FirstByte> {
    await promisify(execFile)('mkfifo', [path]);
    // For writing as well, so that it does not end with its first writer.
    const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
    const pipe = new Socket({ fd, readable: true, writable: false });
    pipe.resume();
    defer(() => pipe.destroy());
    return new FirstByte(path, pipe);
  }

  /** When the next byte came, by `performance.now()`. */
  async next(): Promise<number> {
    const came = new Promise<number>((resolve) => {
      this.#pipe.once('data', () => resolve(performance.now()));
    });
    return withDeadline(came, ARRIVAL_MS);
  }
}

export interface Latencies {
  /** Milliseconds from the request to its 202. */
  accept: number[];
  /** Milliseconds from there to the first byte at the URL. */
  start: number[];
}

/** Triggers at a fixed rate, whatever becomes of it, as a crowd of clients would. */
export async function probe(
  { api, targets }: { api: Api; targets: Target[] },
  receiver: Receiver,
  perSecond: number,
  seconds: number,
): Promise<Latencies> {
  const accept: number[] = [];
  const start: number[] = [];
  const one = async (target: Target) => {
    const { runId, sentAt, acceptedAt } = await trigger(api, target);
    accept.push(acceptedAt - sentAt);
    start.push((await receiver.arrival(runId)) - acceptedAt);
  };
  const all: Promise<void>[] = [];
  const began = performance.now();
  for (let count = 0; count < perSecond * seconds; count += 1) {
    await sleep(Math.max(began + (count * 1000) / perSecond - performance.now(), 0));
    const target = targets[count % targets.length];
    if (target) all.push(one(target));
  }
  await Promise.all(all);
  return { accept, start };
}

/** The value below which this share of the values lies. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)] ?? Number.NaN;
}
