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

/** Answers a request with an error, as soon as that is safe. */
export function refuse(request: FastifyRequest, reply: FastifyReply, error: ApiError): void {
  const { raw } = request;
  // What is left of the request is thrown away at once: Node would stop to read the connection for it.
  if (!raw.complete) raw.resume();
  // To close a connection over unread bytes is to reset it, and that can cost the client the answer (RFC 9112, section 9.6).
  const isLast = !reply.raw.shouldKeepAlive || reply.getHeader('connection') === 'close';
  if (isLast && !raw.complete) raw.once('close', () => sendError(request, reply, error));
  else sendError(request, reply, error);
}

/** Answers with an error of the catalogue. */
function sendError(request: FastifyRequest, reply: FastifyReply, error: ApiError): FastifyReply {
  const { id, message, retryAfterSeconds } = error;
  request.errorId = id;
  const { statusCode } = ERRORS[id];
  reply.code(statusCode).header('cache-control', 'no-store');
  if (statusCode === 401) reply.header('www-authenticate', 'ApiKey realm="orc"');
  reply.headers(error.headers);
  if (retryAfterSeconds !== undefined) reply.header('retry-after', retryAfterSeconds);
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
      if (apiError.id === 'internal_error') log.failed(request, error);
      refuse(request, reply, apiError);
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
