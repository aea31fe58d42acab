import type { Socket } from 'node:net';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { ApiError, ERRORS, type ErrorId, errorBody } from '../../core/errors.ts';
import type { RequestLog } from '../request-log.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Identifier of the error this request was answered with, for the log. */
    errorId: ErrorId | undefined;
  }
}

export const JSON_TYPE = 'application/json; charset=utf-8';

/** Errors that give a request up before all of it has arrived. */
const CLOSING_ERRORS: ReadonlySet<ErrorId> = new Set(['payload_too_large', 'request_timeout']);

/** Connections that are closed after an answer that is on its way, or after their next one. */
const ending = new WeakSet<Socket>();

/** Makes the answer the last one of its connection. */
export function endConnection({ raw }: FastifyRequest, reply: FastifyReply): void {
  ending.add(raw.socket);
  reply.header('connection', 'close');
}

/** Refuses what comes over a connection from now on, and closes it then. */
export function distrust(socket: Socket): void {
  ending.add(socket);
}

/** Whether nobody could read the answer to this request any more, so that it must not be run. */
export function comesTooLate({ raw }: FastifyRequest): boolean {
  return ending.has(raw.socket);
}

/** Answers with an error of the catalogue. */
export function sendError(request: FastifyRequest, reply: FastifyReply, error: ApiError): FastifyReply {
  const { id, message, retryAfterSeconds } = error;
  request.errorId = id;
  const { statusCode } = ERRORS[id];
  reply.code(statusCode).header('cache-control', 'no-store');
  if (statusCode === 401) reply.header('www-authenticate', 'ApiKey realm="orc"');
  reply.headers(error.headers);
  if (retryAfterSeconds !== undefined) reply.header('retry-after', retryAfterSeconds);
  // What is left of a request that was given up is not waited for. One that was read to its end leaves the connection
  // open, as another request may have come right behind it and be accepted: its answer must not be lost.
  if (CLOSING_ERRORS.has(id) && !request.raw.complete) endConnection(request, reply);
  return reply.send(errorBody(id, message));
}

/**
 * Any thrown value as an error of the catalogue. What is unforeseen becomes `internal_error` with it as the cause. Of
 * Fastify's own 4xx only the one for a target that cannot be decoded is ever thrown: the rest is answered before.
 */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { statusCode = 500 } = error as Partial<FastifyError>;
  return new ApiError(statusCode >= 400 && statusCode < 500 ? 'bad_request' : 'internal_error', {
    cause: error,
  });
}

/** Makes every answer that is an error the contract's error object, wherever it comes from. */
export const errorsPlugin = fastifyPlugin(
  async (app: FastifyInstance, { log }: { log: RequestLog }) => {
    app.decorateRequest('errorId', undefined);

    app.setErrorHandler((error, request, reply) => {
      const apiError = toApiError(error);
      if (apiError.id === 'internal_error') {
        log.failed(request, error);
      }
      // The rest of a request mostly comes together with its beginning, and one request is answered after the other.
      if (request.raw.complete) sendError(request, reply, apiError);
      else setImmediate(sendError, request, reply, apiError);
    });

    const allowedMethods = collectMethods(app);
    // Fastify calls a not-found handler only after it has read and judged the body, which nobody asked for here.
    app.addHook('preParsing', (request, reply, _payload, done) => {
      if (!request.is404) return done();
      const allowed = allowedMethods(pathOf(request.url));
      if (!allowed) throw new ApiError('not_found');
      reply.header('allow', allowed);
      throw new ApiError('method_not_allowed');
    });
  },
  { name: 'errors', fastify: '5.x' },
);

/** The path of a request target as the router sees it: without the origin of an absolute target, and decoded. */
function pathOf(url: string): string {
  const path = url.replace(/^https?:\/\/[^/?#]*/i, '').split(/[?#]/, 1)[0];
  try {
    return decodeURI(path || '/');
  } catch (cause) {
    // The router has not tried to decode it when no path at all answers the method.
    throw new ApiError('bad_request', { cause });
  }
}

/** Remembers the routes, to tell a wrong method from a path that does not exist. */
function collectMethods(app: FastifyInstance): (path: string) => string | undefined {
  const routes = new Map<string, { path: RegExp; methods: Set<string> }>();
  app.addHook('onRoute', ({ url, method }) => {
    const path = new RegExp(`^${url.replaceAll('.', '\\.').replace(/:[a-z]+/g, '[^/]*')}$`);
    const route = routes.get(url) ?? { path, methods: new Set() };
    for (const each of [method].flat()) route.methods.add(each);
    routes.set(url, route);
  });
  return (path) => {
    const route = [...routes.values()].find((each) => each.path.test(path));
    return route && [...route.methods].sort().join(', ');
  };
}
