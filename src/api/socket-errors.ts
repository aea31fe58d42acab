import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { ConnectionError } from 'fastify';
import { ERRORS, type ErrorId, errorBody } from '../core/errors.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Connection, Connections } from './connections.ts';
import { isRequestLineTooLong } from './long-line.ts';
import { JSON_TYPE } from './plugins/errors.ts';
import type { RequestLog } from './request-log.ts';

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
    server.on('connect', (_request, socket) => {
      const connection = this.#connections.of(socket as Socket);
      if (connection) this.#refuse(connection, 'method_not_allowed', { Allow: 'GET, HEAD, POST' });
    });
    server.on('checkExpectation', (_request, response) => this.#refuseExpectation(response));
    server.on('checkContinue', (request, response) => beginInTurn(server, request, response));
    server.on('upgrade', (request, socket, rest) => {
      const connection = this.#connections.of(socket as Socket);
      if (connection) ignoreUpgrade(server, connection, request, rest);
    });
    // Node ends a connection over the method of HTTP/2's preface without an answer, and Fastify has no hooks for it. No
    // version comes with it but HTTP/0.9, for which it is then refused like any other request.
    server.prependListener('request', (request) => {
      if (request.method === 'PRI') request.method = 'GET';
    });
  }

  /** Fastify's `clientErrorHandler`. */
  readonly handle = (error: ConnectionError, socket: Socket): void => {
    const connection = this.#connections.of(socket);
    // The parser has something to say about the end of what it was not given any more.
    if (connection?.isClosing) return;
    if (!connection || error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
    else if (error.code === 'HPE_HEADER_OVERFLOW') void this.#refuseOverflow(connection, error);
    else this.#refuse(connection, idOf(error));
  };

  async #refuseOverflow(connection: Connection, { rawPacket, bytesParsed }: ConnectionError): Promise<void> {
    connection.discardInput();
    // Fastify's type describes a Buffer as JSON shows it.
    const packet = rawPacket as unknown as Buffer;
    const isLine = await isRequestLineTooLong(connection.socket, packet, bytesParsed);
    this.#refuse(connection, isLine ? 'uri_too_long' : 'headers_too_large');
  }

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
      else this.#answer(connection, id, headers);
    };
    if (owed) owed.once('close', end);
    else end();
  }

  #answer(connection: Connection, id: ErrorId, headers: Record<string, string>): void {
    const { statusCode } = ERRORS[id];
    const body = JSON.stringify(errorBody(id));
    const fields = { ...headersOf(body), ...headers, Date: new Date().toUTCString(), Connection: 'close' };
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
    this.#metrics?.requestRejected(id);
    this.#log.refused(id, 'connection closed');
    connection.end([`HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode]}`, ...lines, '', body].join('\r\n'));
  }

  /**
   * RFC 9110, section 10.1.1: 417 for any expectation but `100-continue`. Where the request ends is known all the same,
   * so that the connection stays open: requests that came right behind this one are answered, too.
   */
  #refuseExpectation(response: ServerResponse): void {
    const { statusCode } = ERRORS.expectation_failed;
    const body = JSON.stringify(errorBody('expectation_failed'));
    this.#metrics?.requestRejected('expectation_failed');
    this.#log.refused('expectation_failed', 'request');
    response.writeHead(statusCode, headersOf(body)).end(body);
  }
}

/**
 * Begins with a request that asks for the 100 before its body (RFC 9110, section 10.1.1), once those before it are
 * answered. The 100 cannot be sent earlier; and Node would close the connection after an answer that comes without it,
 * over requests that came right behind and are being executed.
 */
function beginInTurn(server: Server, request: IncomingMessage, response: ServerResponse): void {
  const begin = () => {
    response.writeContinue();
    server.emit('request', request, response);
  };
  if (response.socket) begin();
  else response.once('socket', begin);
}

/**
 * Lets a request that asks for another protocol be read again without that (RFC 9110, section 7.8: a server may ignore
 * it), together with what came behind it, once those before it are answered. Node's parser stops at such a request, and
 * what came in the same packet would be lost.
 */
function ignoreUpgrade(server: Server, connection: Connection, request: IncomingMessage, rest: Buffer): void {
  const { socket, owed } = connection;
  socket.unshift(Buffer.concat([headWithoutUpgrade(request), rest]));
  if (!owed) {
    server.emit('connection', socket);
    return;
  }
  const ignore = () => undefined;
  // While there is such a listener, nothing that comes is taken from the socket.
  socket.on('readable', ignore).on('error', ignore);
  owed.once('close', () => {
    socket.off('readable', ignore).off('error', ignore);
    if (!connection.isClosing) server.emit('connection', socket);
  });
}

/** No longer than it was, so that it does not get too long. */
function headWithoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const [name = '', value = ''] = rawHeaders.slice(index, index + 2);
    if (name.toLowerCase() !== 'upgrade') lines.push(`${name}:${value}`);
  }
  return Buffer.from([...lines, '\r\n'].join('\r\n'), 'latin1');
}

/** What Node's parser and timers report; anything but a client that stalls is malformed HTTP. */
function idOf({ code }: ConnectionError): ErrorId {
  return code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'request_timeout' : 'bad_request';
}

function headersOf(body: string): Record<string, string | number> {
  return {
    'Content-Type': JSON_TYPE,
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
  };
}
