import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { ConnectionError } from 'fastify';
import { ERRORS, type ErrorId, errorBody } from '../core/errors.ts';
import type { Logger } from '../logger.ts';

/** What Node's HTTP parser and timers report, by their code; anything else is malformed HTTP. */
const ERROR_IDS: Readonly<Record<string, ErrorId>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
};

/** A request line that goes on after this many bytes of a packet is too long by itself. */
const LONG_REQUEST_LINE = /^[A-Z]{1,20} [^\r\n]{8192}/;

/** A peer that does not close its side after the answer is cut off after this time, in milliseconds. */
const LINGER_MS = 2000;

/**
 * Answers what never becomes a request that Fastify sees, in the contract's shape: malformed HTTP, clients that stall,
 * CONNECT, and an `Expect` that cannot be met. The connection is closed then, as nobody knows where the next request
 * would begin.
 */
export class SocketErrors {
  readonly #logger: Logger;
  readonly #latestResponses = new WeakMap<Socket, ServerResponse>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  attach(server: Server): void {
    server.on('request', (request, response) => this.#latestResponses.set(request.socket, response));
    server.on('connect', (_request, socket) =>
      this.#answer(socket as Socket, 'method_not_allowed', { Allow: 'GET, HEAD, POST' }),
    );
    server.on('checkExpectation', (request, response) => this.#refuseExpectation(request, response));
  }

  /** Fastify's `clientErrorHandler`. */
  readonly handle = (error: ConnectionError, socket: Socket): void => {
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const id = errorIdOf(error);
    const latest = this.#latestResponses.get(socket);
    // A whole request came before what is malformed, and its answer goes first.
    if (latest?.req.complete && !latest.writableFinished)
      latest.once('finish', () => this.#answer(socket, id));
    else this.#answer(socket, id);
  };

  #answer(socket: Socket, id: ErrorId, headers: Record<string, string> = {}): void {
    const { statusCode } = ERRORS[id];
    const body = JSON.stringify(errorBody(id));
    const fields = { ...headersOf(body), ...headers, Date: new Date().toUTCString(), Connection: 'close' };
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
    this.#logger.info({ statusCode, error: id }, 'connection closed');
    socket.on('error', () => socket.destroy());
    socket.setTimeout(LINGER_MS, () => socket.destroy());
    // What the peer still sends is read and thrown away: closing over it would cost the peer the answer.
    socket.resume();
    socket.end([`HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode]}`, ...lines, '', body].join('\r\n'));
  }

  /** RFC 9110, section 10.1.1: 417 for any expectation but `100-continue`. */
  #refuseExpectation(_request: IncomingMessage, response: ServerResponse): void {
    const { statusCode } = ERRORS.expectation_failed;
    const body = JSON.stringify(errorBody('expectation_failed'));
    this.#logger.info({ statusCode, error: 'expectation_failed' }, 'connection closed');
    response.writeHead(statusCode, { ...headersOf(body), Connection: 'close' });
    response.end(body);
  }
}

function errorIdOf({ code, rawPacket }: ConnectionError): ErrorId {
  const id = ERROR_IDS[code] ?? 'bad_request';
  const isLongLine = id === 'headers_too_large' && LONG_REQUEST_LINE.test(String(rawPacket).slice(0, 16_384));
  return isLongLine ? 'uri_too_long' : id;
}

function headersOf(body: string): Record<string, string | number> {
  return {
    'Content-Type': 'application/json; charset=utf-8',
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
  };
}
