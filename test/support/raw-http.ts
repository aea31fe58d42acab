import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll } from 'vitest';
import type { Answer } from './app.ts';

/** The answer to bytes that were sent, and what became of the connection after it. */
export interface RawAnswer extends Answer {
  connection: 'usable' | 'closed';
}

/** Makes an app listen for the tests of a file; returns what sends bytes to it. */
export function listenRaw(app: { listen: FastifyInstance['listen']; server: FastifyInstance['server'] }) {
  beforeAll(async () => {
    await app.listen({ host: '127.0.0.1', port: 0 });
  });
  afterAll(() => app.server.closeAllConnections());
  return (...parts: (string | Buffer)[]) => sendRaw((app.server.address() as AddressInfo).port, parts);
}

const PROBE = 'GET /orc/health HTTP/1.1\r\nhost: probe\r\n\r\n';

/**
 * Sends bytes over a connection of their own and reads the answer. Then finds out whether the connection serves another
 * request.
 *
 * @throws when the connection ends without an answer, or when what follows the answer is none to the next request
 */
async function sendRaw(port: number, parts: (string | Buffer)[]): Promise<RawAnswer> {
  const isHead = String(parts[0]).startsWith('HEAD ');
  const socket = connect(port, '127.0.0.1');
  const received: Buffer[] = [];
  let wake = () => {};
  socket.on('data', (chunk) => {
    received.push(chunk);
    wake();
  });
  // A reset is an end; what was received before it counts.
  socket.on('error', () => {});
  socket.on('close', () => wake());

  async function nextAnswer(offset: number, hasBody = true): Promise<ParsedAnswer | undefined> {
    for (;;) {
      const answer = parseAnswer(Buffer.concat(received), offset, hasBody);
      if (answer) return answer;
      if (socket.closed) return undefined;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }

  try {
    await once(socket, 'connect');
    for (const part of parts) socket.write(part);
    const first = await nextAnswer(0, !isHead);
    if (!first) throw new Error(`no answer, but: ${JSON.stringify(Buffer.concat(received).toString())}`);
    if (first.answer.headers['connection'] !== 'close') socket.write(PROBE);
    const second = await nextAnswer(first.end);
    if (second && second.answer.statusCode !== 200) {
      throw new Error(`${JSON.stringify(first.answer)} was followed by ${JSON.stringify(second.answer)}`);
    }
    return { ...first.answer, connection: second ? 'usable' : 'closed' };
  } finally {
    socket.destroy();
  }
}

interface ParsedAnswer {
  answer: Answer;
  /** Where the next answer begins. */
  end: number;
}

/** The first final answer in a stream of bytes, once it is complete. Knows bodies with a Content-Length only. */
function parseAnswer(bytes: Buffer, offset: number, hasBody: boolean): ParsedAnswer | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n', offset);
  if (headEnd < 0) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('latin1', offset, headEnd).split('\r\n');
  const statusCode = Number(/^HTTP\/1\.1 (\d{3}) [A-Z]/.exec(statusLine)?.[1]);
  if (Number.isNaN(statusCode)) throw new Error(`not an answer: ${JSON.stringify(statusLine)}`);
  const bodyStart = headEnd + 4;
  if (statusCode < 200) return parseAnswer(bytes, bodyStart, hasBody);
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
  return { answer: { statusCode, headers, body: bytes.toString('utf8', bodyStart, end) }, end };
}
