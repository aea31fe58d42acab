import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { cpuSince, markCpu, percentiles } from './http-figures.ts';
import type { HttpRequest, Load, Sample } from './http-load.ts';
import type { Ticks } from './http-ticker.ts';

/** No finer than this, in milliseconds, since each tick costs CPU time. */
const MIN_PERIOD_MS = 0.25;

/** After the last request has been due, answers are waited for this long at most, in milliseconds. */
const GRACE_MS = 2000;

/**
 * An open model: requests are due at a fixed rate, whether the ones before were answered or not, and the time of each is
 * measured from when it was due, so that waiting counts (there is no coordinated omission). A request that is due while
 * every connection is in use waits in here. Of one that is never answered, the time until the end counts.
 *
 * autocannon's `overallRate` is no such thing: it sends each connection's share in a burst at the start of each second.
 */
export async function openModel({
  request,
  connections,
  seconds,
  rate,
  watched,
}: Load & { rate: number }): Promise<Sample> {
  const clients = await Promise.all(Array.from({ length: connections }, () => Client.open(request)));
  const idle = [...clients];
  const due: number[] = [];
  let sent = 0;
  const latencies: number[] = [];
  const late: number[] = [];
  const statuses: Record<string, number> = {};
  let answered = 0;
  let failures = 0;
  const total = Math.round(rate * seconds);
  const ending = new Int32Array(new SharedArrayBuffer(4));
  const periodMs = Math.max(1000 / rate, MIN_PERIOD_MS);
  const ticker = new Worker(new URL('./http-ticker.js', import.meta.url), {
    workerData: { periodMs, ending } satisfies Ticks,
  });
  // A thread takes tens of milliseconds to start, for which no request must have been due.
  await once(ticker, 'message');

  const mark = markCpu(watched);
  const started = performance.now();
  const endsAt = started + seconds * 1000;
  let made = 0;
  const allAnswered = new Promise<void>((resolve) => {
    const send = () => {
      for (let intended = due[sent]; intended !== undefined; intended = due[sent]) {
        const client = idle.shift();
        if (!client) return;
        sent += 1;
        late.push(performance.now() - intended);
        client.send(intended);
      }
    };
    for (const client of clients) {
      client.onAnswer = (status, intended) => {
        const now = performance.now();
        latencies.push(now - intended);
        statuses[status] = (statuses[status] ?? 0) + 1;
        if (now <= endsAt) answered += 1;
        if (latencies.length === total) resolve();
        idle.push(client);
        send();
      };
      client.onFailure = () => {
        failures += 1;
        resolve();
      };
    }
    ticker.on('message', () => {
      const now = performance.now();
      for (; made < total && started + (made * 1000) / rate <= now; made += 1) {
        due.push(started + (made * 1000) / rate);
      }
      if (made === total) Atomics.store(ending, 0, 1);
      send();
    });
    setTimeout(resolve, seconds * 1000 + GRACE_MS).unref();
  });
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const cpu = cpuSince(mark, watched);
  await allAnswered;
  const now = performance.now();
  for (const intended of [...clients.flatMap((client) => client.end()), ...due.slice(sent)])
    latencies.push(now - intended);
  return {
    answered,
    seconds,
    statuses,
    failures,
    latency: percentiles(latencies),
    ...cpu,
    lateP99: percentiles(late).p99,
  };
}

/** One connection with one request at a time. It reads as much of HTTP as our own contestants answer. */
class Client {
  onAnswer: (status: number, intended: number) => void = () => undefined;
  onFailure: () => void = () => undefined;
  readonly #socket: Socket;
  readonly #request: Buffer;
  #intended: number | undefined;
  #received = '';

  static async open(request: HttpRequest): Promise<Client> {
    const { hostname, port } = new URL(request.url);
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    await once(socket, 'connect');
    return new Client(socket, toBytes(request));
  }

  private constructor(socket: Socket, request: Buffer) {
    this.#socket = socket;
    this.#request = request;
    socket.setEncoding('latin1');
    socket.on('data', (text: string) => this.#read(text));
    socket.on('error', () => this.onFailure());
    socket.on('end', () => this.onFailure());
  }

  /** @param intended when it was due, by `performance.now` */
  send(intended: number): void {
    this.#intended = intended;
    this.#socket.write(this.#request);
  }

  /** Closes it. @returns when the request was due that is not answered yet */
  end(): number[] {
    this.onFailure = () => undefined;
    this.#socket.destroy();
    return this.#intended === undefined ? [] : [this.#intended];
  }

  #read(text: string): void {
    this.#received += text;
    const headersEnd = this.#received.indexOf('\r\n\r\n');
    if (headersEnd < 0) return;
    const length = /\r\ncontent-length: *(\d+)/i.exec(this.#received)?.[1];
    if (this.#received.length < headersEnd + 4 + Number(length)) return;
    const status = Number(this.#received.slice(9, 12));
    const intended = this.#intended;
    this.#received = '';
    this.#intended = undefined;
    // Without a length or a request there is no telling what came.
    if (length === undefined || intended === undefined) this.onFailure();
    else this.onAnswer(status, intended);
  }
}

function toBytes({ url, method, headers, body = '' }: HttpRequest): Buffer {
  const { host, pathname } = new URL(url);
  const all = { host, ...headers, 'content-length': Buffer.byteLength(body) };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`${method} ${pathname} HTTP/1.1\r\n${lines.join('')}\r\n${body}`);
}
