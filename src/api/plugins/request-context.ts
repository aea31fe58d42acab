import type { FastifyInstance } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { v7 as uuidv7 } from 'uuid';
import { ApiError } from '../../core/errors.ts';
import { loggable } from '../../logger.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Run that this request started, for the log. */
    runId: string | undefined;
    /** Slug of the automation whose key this request carries, for the log. */
    automationSlug: string | undefined;
  }
}

const REQUEST_ID = /^[\x21-\x7e]{1,128}$/;

/** The caller's `x-request-id`, when it is fit for a header and a log; otherwise a new one. */
export function requestIdOf(request: { headers: Record<string, string | string[] | undefined> }): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : uuidv7();
}

/** Gives every request its id, and every answer one line in the log. */
export const requestContextPlugin = fastifyPlugin(
  async (app: FastifyInstance) => {
    app.decorateRequest('runId', undefined);
    app.decorateRequest('automationSlug', undefined);

    app.addHook('onRequest', async (request, reply) => {
      reply.header('x-request-id', request.id);
      // RFC 9112, section 3.2: without exactly one Host header a request is refused. Node would refuse it without a body.
      const { host } = request.headers;
      if (host === undefined && request.raw.httpVersion === '1.1') {
        throw new ApiError('bad_request', { message: 'The Host header is missing.' });
      }
      if (host?.includes(',')) throw new ApiError('bad_request', { message: 'There is more than one host.' });
    });

    app.addHook('onResponse', async (request, reply) => {
      const { method, id: requestId, errorId: error, runId, automationSlug: automation } = request;
      const { statusCode } = reply;
      const path = request.routeOptions.url ?? loggable(request.url.split('?', 1)[0] ?? '');
      const durationMs = Math.round(reply.elapsedTime * 10) / 10;
      request.log[levelOf(method, statusCode)](
        { requestId: loggable(requestId), method, path, statusCode, durationMs, error, automation, runId },
        'request',
      );
    });
  },
  { name: 'request-context', fastify: '5.x', dependencies: ['errors'] },
);

function levelOf(method: string, statusCode: number): 'debug' | 'info' | 'error' {
  if (statusCode === 500) return 'error';
  // Polls of monitors and readers would drown what an operator looks for.
  const isRoutine = (method === 'GET' || method === 'HEAD') && statusCode < 400;
  return isRoutine ? 'debug' : 'info';
}
