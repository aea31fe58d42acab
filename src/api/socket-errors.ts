import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
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

/** The response to the request that came last on a connection, and to the one before it. */
interface LatestResponses {
  latest: ServerResponse;
  previous: ServerResponse | undefined;
}

/**
 * Answers what never becomes a request that Fastify sees, in the contract's shape: malformed HTTP, clients that stall,
 * CONNECT, and an `Expect` that cannot be met. Except for the last one, the connection is closed then, as nobody knows
 * where the next request would begin.
 */
export class SocketErrors {
  readonly #logger: Logger;
  readonly #responses = new WeakMap<Socket, LatestResponses>();
  /** Connections on which nothing but the answer to what was malformed is still to come. */
  readonly #refused = new WeakSet<Socket>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  attach(server: Server): void {
    server.on('request', (request, response) => this.#remember(request, response));
    server.on('connect', (_request, socket) =>
      this.#refuse(socket as Socket, 'method_not_allowed', { Allow: 'GET, HEAD, POST' }),
    );
    server.on('checkExpectation', (request, response) => this.#refuseExpectation(request, response));
  }

  /** Fastify's `clientErrorHandler`. */
  readonly handle = (error: ConnectionError, socket: Socket): void => {
    // To the parser, whatever else the peer sends is the same error again. It is thrown away.
    if (this.#refused.has(socket)) return;
    if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
    else this.#refuse(socket, errorIdOf(error));
  };

  #remember({ socket }: IncomingMessage, latest: ServerResponse): void {
    this.#responses.set(socket, { latest, previous: this.#responses.get(socket)?.latest });
  }

  /** Answers and closes the connection, once whatever came before on it is answered. */
  #refuse(socket: Socket, id: ErrorId, headers: Record<string, string> = {}): void {
    this.#refused.add(socket);
    socket.on('error', () => socket.destroy());
    const { latest, previous } = this.#responses.get(socket) ?? {};
    // Either the latest request is what is malformed, in its body; or it is whole, and what follows it is malformed.
    const broken = latest?.req.complete === false ? latest : undefined;
    const owed = broken ? previous : latest;
    const end = () => {
      // The answer before may have ended the connection already.
      if (!socket.writable) return;
      // One request is not answered twice: it may have been refused before the rest of it came.
      if (broken?.headersSent) this.#close(socket);
      else this.#answer(socket, id, headers);
    };
    if (owed && !owed.writableFinished) owed.once('finish', end);
    else end();
  }

  #answer(socket: Socket, id: ErrorId, headers: Record<string, string> = {}): void {
    const { statusCode } = ERRORS[id];
    const body = JSON.stringify(errorBody(id));
    const fields = { ...headersOf(body), ...headers, Date: new Date().toUTCString(), Connection: 'close' };
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
    this.#logger.info({ statusCode, error: id }, 'connection closed');
    this.#close(
      socket,
      [`HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode]}`, ...lines, '', body].join('\r\n'),
    );
  }

  #close(socket: Socket, lastWords = ''): void {
    // An idle timeout would never end a peer that goes on sending.
    const linger = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => clearTimeout(linger));
    // What the peer still sends is read and thrown away: closing over it would cost the peer the answer.
    socket.resume();
    socket.end(lastWords);
  }

  /**
   * RFC 9110, section 10.1.1: 417 for any expectation but `100-continue`. Where the request ends is known all the same,
   * so that the connection stays open: requests that came right behind this one are answered, too.
   */
  #refuseExpectation(request: IncomingMessage, response: ServerResponse): void {
    this.#remember(request, response);
    const { statusCode } = ERRORS.expectation_failed;
    const body = JSON.stringify(errorBody('expectation_failed'));
    this.#logger.info({ statusCode, error: 'expectation_failed' }, 'request');
    response.writeHead(statusCode, headersOf(body));
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
