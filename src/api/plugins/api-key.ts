import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { isWellFormedApiKey } from '../../core/api-key.ts';
import { ApiError } from '../../core/errors.ts';
import type { TriggeredAutomation } from '../../store/automations.ts';
import type { Acceptance } from '../acceptance.ts';
import { AuthThrottle } from '../auth-throttle.ts';
import { refuse } from './errors.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The automation whose key this request carries. Set by the api-key plugin; absent outside its scope. */
    automation: TriggeredAutomation | undefined;
    /** When Redis' time for this request is over, in milliseconds since the epoch; runs from when it is first asked. */
    acceptBy: number;
  }
}

/** Made once: they are the cheapest thing to ask for, and to make one takes longer than to check a key's form. */
const REFUSALS = {
  missing_api_key: new ApiError('missing_api_key'),
  invalid_api_key: new ApiError('invalid_api_key'),
};

/**
 * Authenticates every route of the scope it is registered in, by the header `x-api-key` and the parameter `slug`.
 * A missing or malformed key is refused before any of the body is read; whether the key matches the slug is judged in
 * the preHandler, where Fastify has read the body but nothing has looked at it.
 */
export const apiKeyPlugin = fastifyPlugin(
  async (app: FastifyInstance, { acceptance }: { acceptance: Acceptance }) => {
    const throttle = new AuthThrottle();
    const refusal = ({ ip }: FastifyRequest, id: keyof typeof REFUSALS) => {
      const retryAfterSeconds = throttle.failed(ip);
      return retryAfterSeconds === undefined
        ? REFUSALS[id]
        : new ApiError('too_many_failures', { retryAfterSeconds });
    };

    app.decorateRequest('automation', undefined);
    app.decorateRequest('acceptBy', 0);

    app.addHook('onRequest', (request, reply, done) => {
      if (request.headers['x-api-key'] === undefined)
        refuse(request, reply, refusal(request, 'missing_api_key'));
      else if (!isWellFormedApiKey(apiKeyOf(request)))
        refuse(request, reply, refusal(request, 'invalid_api_key'));
      else done();
    });

    const authenticate = async (request: FastifyRequest): Promise<void> => {
      const slug = slugOf(request);
      request.acceptBy ||= acceptance.deadline();
      const result = await acceptance.authenticate(slug, apiKeyOf(request), request.acceptBy);
      if (result.status === 'rejected') throw refusal(request, 'invalid_api_key');
      if (result.status === 'disabled') {
        request.automationSlug = slug;
        throw new ApiError('automation_disabled');
      }
      authenticated(request, result.automation);
    };
    app.addHook('preHandler', (request, _reply, done) => {
      if (request.automation) done();
      else authenticate(request).then(() => done(), done);
    });
  },
  { name: 'api-key', fastify: '5.x', dependencies: ['request-context'] },
);

/** Notes what a request's key opens, as far as is known, for whatever is done or logged next. */
export function authenticated(request: FastifyRequest, automation: TriggeredAutomation | undefined): void {
  request.automation = automation;
  request.automationSlug = automation?.slug;
}

/** The header `x-api-key`, once it is known to be there. */
export function apiKeyOf(request: FastifyRequest): string {
  return String(request.headers['x-api-key']);
}

/** The parameter `slug`, of which nothing is known. */
export function slugOf(request: FastifyRequest): string {
  return (request.params as { slug: string }).slug;
}
