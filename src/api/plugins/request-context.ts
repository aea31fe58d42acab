import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { ApiError, type ErrorId } from '../../core/errors.ts';
import type { Caller } from '../../core/run.ts';
import { loggable } from '../../logger.ts';
import type { Connections } from '../connections.ts';
import type { RequestLog } from '../request-log.ts';
import { comesTooLate, endConnection } from './errors.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Run that this request started, for the log. */
    runId: string | undefined;
    /** Slug of the automation whose key this request carries, for the log. */
    automationSlug: string | undefined;
    /** Who sent it. */
    caller: Caller | undefined;
    /** When its headers had come, on the clock of `performance.now()`. */
    receivedAt: number;
  }
}

interface RequestContextOptions {
  log: RequestLog;
  connections: Connections;
  /** Is told of each request that is answered with an error. */
  onRejected(request: FastifyRequest, error: ErrorId): void;
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

/** Gives every request its id, and every answer one line in the log. */
export const requestContextPlugin = fastifyPlugin(
  async (app: FastifyInstance, { log, connections, onRejected }: RequestContextOptions) => {
    app.decorateRequest('runId', undefined);
    app.decorateRequest('automationSlug', undefined);
    app.decorateRequest('caller', undefined);
    app.decorateRequest('receivedAt', 0);

    app.addHook('onRequest', (request, reply, done) => {
      request.receivedAt = performance.now();
      request.caller = callerOf(request);
      reply.header('x-request-id', request.id);
      checkFraming(request, reply);
      // Fastify makes each answer the last one of its connection during shutdown.
      if (reply.raw.hasHeader('connection')) endConnection(request, reply);
      // RFC 9112, section 3.2: without exactly one Host header a request is refused. Node would refuse it without a body.
      const { host } = request.headers;
      if (host === undefined && request.raw.httpVersion === '1.1') {
        throw new ApiError('bad_request', { message: 'The Host header is missing.' });
      }
      const { url = '' } = request.raw;
      if (url.length > MAX_URL_LENGTH) throw new ApiError('uri_too_long');
      // RFC 9112, section 3.2.4: only OPTIONS has the target `*`, which the router would take for a path.
      if (url.startsWith('*') && request.method !== 'OPTIONS') throw new ApiError('bad_request');
      if (host?.includes(',')) throw new ApiError('bad_request', { message: 'There is more than one host.' });
      done();
    });

    // A client that hangs up does not end its request: what it started goes on, and is logged when its answer is ready.
    app.addHook('onSend', (request, reply, _payload, done) => {
      if (request.errorId === undefined && !log.isWanted(request, reply)) return done();
      connections.whenOver(reply.raw, (hungUp) => {
        // Whoever hangs up must not make a service look as if it failed.
        const isUntoldFailure = hungUp && reply.statusCode >= 500;
        if (request.errorId !== undefined && !isUntoldFailure) onRejected(request, request.errorId);
        log.answered(request, reply, hungUp);
      });
      done();
    });
  },
  { name: 'request-context', fastify: '5.x', dependencies: ['errors'] },
);

/** So much of a user agent is kept, in bytes. */
const USER_AGENT_BYTES = 200;

function callerOf({ ip, headers }: FastifyRequest): Caller {
  const userAgent = Buffer.from(headers['user-agent'] ?? '')
    .subarray(0, USER_AGENT_BYTES)
    .toString();
  return { address: ip, ...(userAgent !== '' && { userAgent: loggable(userAgent) }) };
}

/** Refuses a request whose version or end the parser has taken more generously than HTTP allows. */
function checkFraming(request: FastifyRequest, reply: FastifyReply): void {
  const { headers, raw } = request;
  const { 'transfer-encoding': coding } = headers;
  // Node's parser reads HTTP/0.9 and HTTP/2.0 in a request line as if they were HTTP/1.
  const isVersionKnown = raw.httpVersionMajor === 1;
  // RFC 9112, sections 6.1 and 6.3: HTTP/1.0 has no transfer codings, and only the last one, chunked, ends a request.
  const isEndKnown =
    coding === undefined || (raw.httpVersion !== '1.0' && /(^|[, \t])chunked$/i.test(coding));
  // Nobody can be sure where the next request begins.
  if (!isVersionKnown || !isEndKnown || comesTooLate(request)) {
    endConnection(request, reply);
    throw new ApiError('bad_request');
  }
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    throw new ApiError('unsupported_transfer_encoding');
  }
}
