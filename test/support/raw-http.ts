import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll } from 'vitest';
import type { Answer } from './app.ts';

/** The answer to bytes that were sent, and what became of the connection after it. */
export interface RawAnswer extends Answer {
  /** Status codes of the interim answers before it, such as 100. */
  interim: number[];
  /** A reset may cost the client the answer, so that it never is the right end of a connection. */
  connection: 'usable' | 'closed' | 'reset';
}

type ListeningApp = { listen: FastifyInstance['listen']; server: FastifyInstance['server'] };

/** Makes an app listen for the tests of a file; returns what sends bytes to it. */
export function listenRaw(app: ListeningApp) {
  beforeAll(async () => {
    await app.listen({ host: '127.0.0.1', port: 0 });
  });
  afterAll(() => app.server.closeAllConnections());
  return (...parts: (string | Buffer)[]) => sendRaw(app, parts);
}

const PROBE = 'GET /orc/health HTTP/1.1\r\nhost: probe\r\n\r\n';

/**
 * Sends bytes over a connection of their own and reads the answer. Then finds out whether the connection serves another
 * request.
 *
 * @throws when the connection ends without an answer, or when what follows the answer is none to the next request
 */
async function sendRaw(app: ListeningApp, parts: (string | Buffer)[]): Promise<RawAnswer> {
  const connection = await RawConnection.open(app);
  try {
    connection.write(...parts);
    const first = await connection.nextAnswer(!String(parts[0]).startsWith('HEAD '));
    if (!first) throw new Error(`no answer, but: ${JSON.stringify(connection.text)}`);
    if (first.headers['connection'] !== 'close') connection.write(PROBE);
    const second = await connection.nextAnswer();
    if (second && second.statusCode !== 200) {
      throw new Error(`${JSON.stringify(first)} was followed by ${JSON.stringify(second)}`);
    }
    return { ...first, connection: second ? 'usable' : connection.end };
  } finally {
    connection.destroy();
  }
}

/** A connection over which a test says when it sends what. */
export class RawConnection {
  readonly #socket: Socket;
  readonly #received: Buffer[] = [];
  /** Where the next answer begins. */
  #offset = 0;
  #wake = () => {};
  /** How the connection has ended, once there are no more answers. */
  end: 'closed' | 'reset' = 'closed';

  static open({ server }: ListeningApp): Promise<RawConnection> {
    return RawConnection.to((server.address() as AddressInfo).port);
  }

  static async to(port: number): Promise<RawConnection> {
    const socket = connect(port, '127.0.0.1');
    const connection = new RawConnection(socket);
    await once(socket, 'connect');
    return connection;
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk) => {
      this.#received.push(chunk);
      this.#wake();
    });
    // What was received before a reset counts all the same.
    socket.on('error', () => {
      this.end = 'reset';
    });
    socket.on('close', () => this.#wake());
  }

  get text(): string {
    return Buffer.concat(this.#received).toString();
  }

  write(...parts: (string | Buffer)[]): void {
    for (const part of parts) this.#socket.write(part);
  }

  /** Closes this side once everything is sent, and goes on reading. */
  finish(): void {
    this.#socket.end();
  }

  /** Sends everything before it reads anything, as many clients do. */
  async writeUnread(...parts: (string | Buffer)[]): Promise<void> {
    this.#socket.pause();
    for (const part of parts) await new Promise<void>((resolve) => this.#socket.write(part, () => resolve()));
    this.#socket.resume();
  }

  /** Waits until this text has arrived, whatever comes with it. */
  async received(text: string): Promise<void> {
    while (!this.text.includes(text) && !this.#socket.closed) await this.#more();
  }

  /** The next final answer; undefined when the connection ends without one. */
  async nextAnswer(hasBody = true): Promise<Omit<RawAnswer, 'connection'> | undefined> {
    for (;;) {
      const parsed = parseAnswer(Buffer.concat(this.#received), this.#offset, hasBody);
      if (parsed) {
        this.#offset = parsed.end;
        return parsed.answer;
      }
      if (this.#socket.closed) return undefined;
      await this.#more();
    }
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Says that nothing is read any more. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }
}

interface ParsedAnswer {
  answer: Omit<RawAnswer, 'connection'>;
  /** Where the next answer begins. */
  end: number;
}

/** The first final answer in a stream of bytes, once it is complete. Knows bodies with a Content-Length only. */
function parseAnswer(
  bytes: Buffer,
  offset: number,
  hasBody: boolean,
  interim: number[] = [],
): ParsedAnswer | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n', offset);
  if (headEnd < 0) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('latin1', offset, headEnd).split('\r\n');
  const statusCode = Number(/^HTTP\/1\.1 (\d{3}) [A-Z]/.exec(statusLine)?.[1]);
  if (Number.isNaN(statusCode)) throw new Error(`not an answer: ${JSON.stringify(statusLine)}`);
  const bodyStart = headEnd + 4;
  if (statusCode < 200) return parseAnswer(bytes, bodyStart, hasBody, [...interim, statusCode]);
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  if (!headers['content-length'])
    throw new Error(`an answer without Content-Length: ${JSON.stringify(headers)}`);
  const end = bodyStart + (hasBody ? Number(headers['content-length']) : 0);
  if (bytes.length < end) return undefined;
  return { answer: { statusCode, headers, body: bytes.toString('utf8', bodyStart, end), interim }, end };
}
