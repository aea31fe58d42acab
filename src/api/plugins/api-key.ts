import { isIP } from 'node:net';
import { fastifyRateLimit, normalizeIP } from '@fastify/rate-limit';
import { TypeCompiler } from '@sinclair/typebox/compiler';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { isWellFormedApiKey } from '../../core/api-key.ts';
import { withDeadline } from '../../core/deadline.ts';
import { ApiError } from '../../core/errors.ts';
import type { AutomationStore, TriggeredAutomation } from '../../store/automations.ts';
import type { HealthMonitor } from '../health-monitor.ts';
import { ApiKeyHeaderSchema } from '../schemas.ts';
import { validationRefusal } from '../validation-refusal.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** A preHandler: checks the key of a request against its slug, and then what its schemas have said of the rest. */
    checkApiKey(request: TriggerRequest): Promise<void>;
  }
  interface FastifyRequest {
    /** The header `x-api-key`, in the form of a key. */
    apiKey: string;
    /** The automation that this request's key opens. */
    automation: TriggeredAutomation | undefined;
    /** When the time that Redis has for this request is over, by `Date.now()`. */
    acceptBy: number;
  }
}

interface TriggerRequest extends FastifyRequest {
  params: { slug: string };
}

interface ApiKeyOptions {
  automations: AutomationStore;
  health: HealthMonitor;
  /** Milliseconds that Redis may take for all questions of one request together. */
  acceptTimeoutMs: number;
}

/** Failed authentications of one network within a minute before it is told to slow down. */
const FAILURES_PER_MINUTE = 100;

/** Networks remembered at the same time; the ones that failed least recently are forgotten first. */
const MAX_NETWORKS = 5000;

/**
 * What counts as one address: the /64 that one customer usually holds (RFC 6177), and whatever a proxy passes on that is none.
 * It is copied, as a slice of a header would keep all of the header in memory.
 */
function networkOf({ ip }: FastifyRequest): string {
  return isIP(ip) ? normalizeIP(Buffer.from(ip).toString()) : 'no address';
}

/**
 * Authentication by the header `x-api-key`, for the scope it is registered in. A missing or malformed key is refused before
 * any of the body is read. Whether the key matches the slug is checked in the preHandler, when the whole request was read
 * and judged, so that what is wrong with the rest is told only to who holds the key.
 */
export const apiKeyPlugin = fastifyPlugin(
  async (app: FastifyInstance, { automations, health, acceptTimeoutMs }: ApiKeyOptions) => {
    const apiKeyHeader = TypeCompiler.Compile(ApiKeyHeaderSchema);
    await app.register(fastifyRateLimit, {
      global: false,
      max: FAILURES_PER_MINUTE,
      timeWindow: 60_000,
      cache: MAX_NETWORKS,
      keyGenerator: networkOf,
    });
    const countFailure = app.createRateLimit();
    /** Counts a failed authentication. A valid key is never refused for those of others, as only failures ask. */
    const refusal = async (request: FastifyRequest, id: 'missing_api_key' | 'invalid_api_key') => {
      const failures = await countFailure(request);
      if (failures.isAllowed || !failures.isExceeded) return new ApiError(id);
      return new ApiError('too_many_failures', { retryAfterSeconds: failures.ttlInSeconds });
    };

    app.decorateRequest('apiKey', '');
    app.decorateRequest('automation', undefined);
    app.decorateRequest('acceptBy', 0);

    app.addHook('onRequest', (request, _reply, done) => {
      const { headers } = request;
      if (apiKeyHeader.Check(headers) && isWellFormedApiKey(headers['x-api-key'])) {
        request.apiKey = headers['x-api-key'];
        return done();
      }
      const id = headers['x-api-key'] === undefined ? 'missing_api_key' : 'invalid_api_key';
      void refusal(request, id).then(done, done);
    });

    /** Asks Redis. @throws ApiError unless the key opens an automation that is enabled */
    const authenticate = async (request: TriggerRequest): Promise<TriggeredAutomation> => {
      const { params, apiKey, acceptBy } = request;
      const asking = automations.authenticate(params.slug, apiKey);
      const result = await withDeadline(asking, acceptBy - Date.now()).catch((cause) => {
        throw new ApiError('queue_unavailable', { cause });
      });
      if (result.status === 'rejected') throw await refusal(request, 'invalid_api_key');
      if (result.status === 'authenticated') return result.automation;
      request.automationSlug = params.slug;
      throw new ApiError('automation_disabled');
    };

    app.decorate('checkApiKey', async (request) => {
      if (health.latest.status === 'unavailable') {
        throw new ApiError('queue_unavailable', { cause: new Error('the latest health check failed') });
      }
      request.acceptBy = Date.now() + acceptTimeoutMs;
      const { params, apiKey, validationError } = request;
      // What Redis has confirmed before is enough to try; before anything is said of the rest, Redis confirms the key.
      const recalled = validationError ? undefined : automations.recall(params.slug, apiKey);
      request.automation = recalled ?? (await authenticate(request));
      request.automationSlug = params.slug;
      if (validationError) throw validationRefusal(request);
    });
  },
  { name: 'api-key', fastify: '5.x', dependencies: ['request-context'] },
);
