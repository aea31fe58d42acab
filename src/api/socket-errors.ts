import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { ConnectionError } from 'fastify';
import { ERRORS, type ErrorId, errorBody } from '../core/errors.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Connection, Connections } from './connections.ts';
import { JSON_TYPE } from './plugins/errors.ts';
import type { RequestLog } from './request-log.ts';

/** What Node's parser and timers report. Any other code of theirs stands for malformed HTTP. */
const ERROR_IDS: Readonly<Record<string, ErrorId>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

/**
 * Answers what never becomes a request that Fastify sees, in the contract's shape: malformed HTTP, clients that stall,
 * CONNECT, and an `Expect` that cannot be met. Except for the last one, the connection is closed then, as nobody knows
 * where the next request would begin.
 */
export class SocketErrors {
  readonly #connections: Connections;
  readonly #log: RequestLog;
  readonly #metrics: Metrics | undefined;

  constructor(connections: Connections, log: RequestLog, metrics: Metrics | undefined) {
    this.#connections = connections;
    this.#log = log;
    this.#metrics = metrics;
  }

  attach(server: Server): void {
    server.on('connect', ({ socket }) => {
      const connection = this.#connections.of(socket);
      if (connection) this.#refuse(connection, 'method_not_allowed', { Allow: 'GET, HEAD, POST' });
    });
    server.on('checkExpectation', (_request, response) => this.#refuseExpectation(response));
  }

  /** Fastify's `clientErrorHandler`. */
  readonly handle = ({ code }: ConnectionError, socket: Socket): void => {
    const connection = this.#connections.of(socket);
    // The parser has something to say about the end of what it was not given any more.
    if (connection?.isClosing) return;
    if (!connection || code === 'ECONNRESET' || !socket.writable) socket.destroy();
    else this.#refuse(connection, ERROR_IDS[code] ?? 'bad_request');
  };

  /** Answers and closes the connection, once whatever came before on it is answered. */
  #refuse(connection: Connection, id: ErrorId, headers: Record<string, string> = {}): void {
    connection.discardInput();
    // Either the latest request is what is malformed, in its body; or it is whole, and what follows it is malformed.
    const { socket, unread, owed } = connection;
    const end = () => {
      // The answer before may have ended the connection already.
      if (!socket.writable) return;
      // One request is not answered twice: it may have been refused before the rest of it came.
      if (unread?.headersSent) connection.end();
      else this.#answer(connection, id, headers, unread?.req);
    };
    if (owed) owed.once('close', end);
    else end();
  }

  /** @param request the one that is cut off by it */
  #answer(
    connection: Connection,
    id: ErrorId,
    headers: Record<string, string>,
    request?: IncomingMessage,
  ): void {
    const { statusCode } = ERRORS[id];
    const body = JSON.stringify(errorBody(id));
    const fields = { ...headersOf(body), ...headers, Date: new Date().toUTCString(), Connection: 'close' };
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
    this.#metrics?.requestRejected(id);
    this.#log.refused(id, 'connection closed', connection.socket, request);
    connection.end([`HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode]}`, ...lines, '', body].join('\r\n'));
  }

  /**
   * RFC 9110, section 10.1.1: 417 for any expectation but `100-continue`. Where the request ends is known all the same,
   * so that the connection stays open: requests that came right behind this one are answered, too.
   */
  #refuseExpectation(response: ServerResponse): void {
    const { req } = response;
    const { statusCode } = ERRORS.expectation_failed;
    const body = JSON.stringify(errorBody('expectation_failed'));
    this.#metrics?.requestRejected('expectation_failed');
    this.#log.refused('expectation_failed', 'request', req.socket, req);
    if (req.headers.upgrade === undefined) {
      response.writeHead(statusCode, headersOf(body)).end(body);
      return;
    }
    // What came in the same packet behind such a request is lost, as beginRequest says.
    const connection = this.#connections.of(req.socket);
    if (connection) connection.isEnding = true;
    req
      .resume()
      .once('close', () =>
        response.writeHead(statusCode, { ...headersOf(body), Connection: 'close' }).end(body),
      );
  }
}

function headersOf(body: string): Record<string, string | number> {
  return {
    'Content-Type': JSON_TYPE,
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
  };
}
