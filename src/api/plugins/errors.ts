import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { ConnectionError, FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { ApiError, ERRORS, type ErrorId, errorBody } from '../../core/errors.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Identifier of the error this request was answered with, for the log. */
    errorId: ErrorId | undefined;
  }
}

const JSON_TYPE = 'application/json; charset=utf-8';

/** The bodies never change, so that each is serialised once. */
const serializedBodies = new Map(
  Object.keys(ERRORS).map((id) => [id as ErrorId, JSON.stringify(errorBody(id as ErrorId))]),
);

/** Answers with an error of the catalogue. */
export function sendError(request: FastifyRequest, reply: FastifyReply, error: ApiError): FastifyReply {
  const { id, message, retryAfterSeconds } = error;
  request.errorId = id;
  const { statusCode, message: usualMessage } = ERRORS[id];
  reply.code(statusCode).header('content-type', JSON_TYPE).header('cache-control', 'no-store');
  if (statusCode === 401) reply.header('www-authenticate', 'ApiKey realm="orc"');
  if (retryAfterSeconds !== undefined) reply.header('retry-after', retryAfterSeconds);
  // A body that is not going to be read would otherwise be taken for the next request.
  if (statusCode === 413 || statusCode === 408) reply.header('connection', 'close');
  const body = message === usualMessage ? serializedBodies.get(id) : JSON.stringify(errorBody(id, message));
  return reply.serializer((payload: string) => payload).send(body);
}

/** Fastify's own errors, by their code; any other 4xx of the framework is a request that HTTP does not allow. */
const FASTIFY_ERRORS: Readonly<Record<string, ErrorId>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'payload_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_ROUTE_MISSING_CONTENT_TYPE: 'unsupported_media_type',
  FST_ERR_NOT_FOUND: 'not_found',
  FST_ERR_MAX_PARAM_LENGTH: 'not_found',
};

/** Any thrown value as an error of the catalogue. What is unforeseen becomes `internal_error` with it as the cause. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { code = '', statusCode = 500 } = error as Partial<FastifyError>;
  const id =
    FASTIFY_ERRORS[code] ?? (statusCode >= 400 && statusCode < 500 ? 'bad_request' : 'internal_error');
  return new ApiError(id, { cause: error });
}

/** Makes every answer that is an error the contract's error object, wherever it comes from. */
export const errorsPlugin = fastifyPlugin(
  async (app: FastifyInstance) => {
    app.decorateRequest('errorId', undefined);

    app.setErrorHandler((error, request, reply) => {
      const apiError = toApiError(error);
      if (apiError.id === 'internal_error') {
        request.log.error({ err: error, requestId: request.id }, 'request failed');
      }
      return sendError(request, reply, apiError);
    });

    const allowedMethods = collectMethods(app);
    // Fastify calls a not-found handler only after it has read and judged the body, which nobody asked for here.
    app.addHook('preParsing', async (request, reply) => {
      if (!request.is404) return;
      const allowed = allowedMethods(pathOf(request.url));
      if (!allowed) throw new ApiError('not_found');
      reply.header('allow', allowed);
      throw new ApiError('method_not_allowed');
    });
  },
  { name: 'errors', fastify: '5.x' },
);

function pathOf(url: string): string {
  return url.split(/[?#]/, 1)[0] ?? '';
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

/** Answers a request whose `Expect` header is not `100-continue` (RFC 9110, section 10.1.1). */
export function answerExpectation(_request: IncomingMessage, response: ServerResponse): void {
  const { statusCode } = ERRORS.expectation_failed;
  const body = serializedBodies.get('expectation_failed') ?? '';
  response.writeHead(statusCode, {
    'content-type': JSON_TYPE,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    connection: 'close',
  });
  response.end(body);
}

/** What Node's HTTP parser and timers report, by their code; anything else is malformed HTTP. */
const SOCKET_ERRORS: Readonly<Record<string, ErrorId>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
};

const REASON_PHRASES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
};

/** Answers what never became a request, in the contract's shape, and closes the connection. */
export function answerMalformedHttp(error: ConnectionError, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) {
    socket.destroy();
    return;
  }
  const id = SOCKET_ERRORS[error.code] ?? 'bad_request';
  const body = serializedBodies.get(id) ?? '';
  const { statusCode } = ERRORS[id];
  socket.end(
    [
      `HTTP/1.1 ${statusCode} ${REASON_PHRASES[statusCode]}`,
      `Content-Type: ${JSON_TYPE}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Cache-Control: no-store',
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
  );
}
