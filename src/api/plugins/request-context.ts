import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { ApiError } from '../../core/errors.ts';
import type { Caller } from '../../core/run.ts';
import { loggable } from '../../logger.ts';
import type { Connections } from '../connections.ts';
import type { RequestLog } from '../request-log.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Run that this request started, for the log. */
    runId: string | undefined;
    /** Slug of the automation whose key this request carries, for the log. */
    automationSlug: string | undefined;
    /** Who sent it. */
    readonly caller: Caller;
    /** When its headers had come, on the clock of `performance.now()`. */
    receivedAt: number;
  }
}

interface RequestContextOptions {
  log: RequestLog;
  connections: Connections;
}

/** In characters. Node itself ends a request line only together with the headers, at 16 KiB. */
const MAX_URL_LENGTH = 8192;

const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

/** The caller's `x-request-id`, when it is fit for a header and a log; otherwise a new one. */
export function requestIdOf(request: { headers: Record<string, string | string[] | undefined> }): string {
  const given = request.headers['x-request-id'];
  const isUsable = typeof given === 'string' && REQUEST_ID.test(given) && loggable(given) === given;
  return isUsable ? given : randomUUID();
}

/** Who sends a request, for the log and for its run: the user agent is cut. */
function callerOf({ ip, headers: { 'user-agent': userAgent } }: FastifyRequest): Caller {
  return { address: ip, ...(userAgent && { userAgent: loggable(userAgent) }) };
}

/** What begins every request. Call it for one whose target cannot be decoded, too: Fastify runs no hooks for that. */
export function beginRequest(request: FastifyRequest, reply: FastifyReply): void {
  request.receivedAt = performance.now();
  reply.header('x-request-id', request.id);
  // Another protocol is refused by answering in this one (RFC 9110, section 7.8). Node's parser loses what came in the same
  // packet behind such a request, so that no later answer on this connection may be taken for the one to that.
  if (request.headers.upgrade !== undefined || !isDelimited(request)) reply.header('connection', 'close');
}

/** Gives every request its id and its caller, refuses what Node lets pass of HTTP, and gives every answer its line in the log. */
export const requestContextPlugin = fastifyPlugin(
  async (app: FastifyInstance, { log, connections }: RequestContextOptions) => {
    app.decorateRequest('runId', undefined);
    app.decorateRequest('automationSlug', undefined);
    app.decorateRequest('caller', {
      getter() {
        return callerOf(this);
      },
    });
    app.decorateRequest('receivedAt', 0);
    app.decorateRequest('isLogged', false);

    app.addHook('onRequest', (request, reply, done) => {
      beginRequest(request, reply);
      // None for Fastify's `inject`.
      const connection = connections.of(request.raw.socket);
      if (connection && !isDelimited(request)) {
        // Nobody can be sure where the next request begins: it is answered like malformed HTTP, by SocketErrors.
        connection.isEnding = true;
        reply.hijack();
        const error = Object.assign(new Error('a request without a certain end'), { code: 'HPE_USER' });
        app.server.emit('clientError', error, connection.socket);
        return;
      }
      // Nobody would read the answer, as the last one is on its way.
      if (connection?.isEnding) {
        reply.header('connection', 'close');
        throw new ApiError('bad_request');
      }
      // During shutdown, Fastify makes each answer the last one of its connection.
      if (connection && reply.getHeader('connection') !== undefined) connection.isEnding = true;
      checkHttp(request);
      done();
    });

    // A client that hangs up does not end its request: what it started goes on, and is logged when its answer is ready.
    app.addHook('onSend', (request, reply, _payload, done) => {
      log.watch(request, reply);
      done();
    });

    app.addHook('onResponse', (request, reply, done) => {
      log.answered(request, reply);
      done();
    });
  },
  { name: 'request-context', fastify: '5.x', dependencies: ['errors'] },
);

/** Whether the end of a request is known, whose version or end Node's parser takes more generously than HTTP allows. */
function isDelimited({ headers, raw }: FastifyRequest): boolean {
  const { 'transfer-encoding': coding } = headers;
  // The parser reads HTTP/0.9 and HTTP/2.0 in a request line as if they were HTTP/1.
  if (raw.httpVersionMajor !== 1) return false;
  // RFC 9112, sections 6.1 and 6.3: HTTP/1.0 has no transfer codings, and only the last one, chunked, ends a request.
  return coding === undefined || (raw.httpVersion !== '1.0' && /(^|[, \t])chunked$/i.test(coding));
}

/** Refuses what HTTP does not allow, and Node lets pass. */
function checkHttp({ headers, method, raw }: FastifyRequest): void {
  const { host, 'transfer-encoding': coding } = headers;
  const { url = '' } = raw;
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    throw new ApiError('unsupported_transfer_encoding');
  }
  // RFC 9112, section 3.2: without exactly one Host header a request is refused. Node would refuse it without a body.
  if (host === undefined && raw.httpVersion === '1.1') {
    throw new ApiError('bad_request', { message: 'The Host header is missing.' });
  }
  if (url.length > MAX_URL_LENGTH) throw new ApiError('uri_too_long');
  // RFC 9112, section 3.2.4: only OPTIONS has the target `*`, which the router would take for a path.
  if (url.startsWith('*') && method !== 'OPTIONS') throw new ApiError('bad_request');
  if (host?.includes(',')) throw new ApiError('bad_request', { message: 'There is more than one host.' });
}
