import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '../../core/errors.ts';
import type { Metrics } from '../../ops/metrics.ts';
import type { Tracing } from '../../ops/tracing.ts';
import type { Acceptance, Accepted, TriggerRequest } from '../acceptance.ts';
import { apiKeyOf, apiKeyPlugin, authenticated, slugOf } from '../plugins/api-key.ts';
import { JSON_TYPE } from '../plugins/errors.ts';
import { payloadPlugin, triggerPayload } from '../plugins/payload.ts';
import {
  ACCEPTED_HEADERS,
  EVERY_REQUEST_ERRORS,
  errorResponses,
  IDEMPOTENCY_KEY_PATTERN,
  jsonResponse,
  TriggerHeadersSchema,
  TriggerParamsSchema,
} from '../schemas.ts';
import { traceContextOf } from '../trace-context.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The run of a request that was accepted in one step with the check of its key. */
    accepted: Accepted | undefined;
  }
}

interface AutomationTriggersOptions {
  acceptance: Acceptance;
  metrics: Metrics | undefined;
  tracing: Tracing | undefined;
}

const EXAMPLE = { runId: 'run_0195a2c4-7b1e-7f3a-9c5d-2e8f4a6b1c3d', status: 'queued' };

const IDEMPOTENCY_KEY = new RegExp(IDEMPOTENCY_KEY_PATTERN);

/**
 * `POST /orc/api/automation-triggers/{slug}`: starts a run. The order of checks is header, key, enabled, rate, body,
 * known idempotency key, capacity; a request that is refused consumes nothing.
 */
export async function automationTriggersRoute(
  app: FastifyInstance,
  { acceptance, metrics, tracing }: AutomationTriggersOptions,
) {
  /** @throws ApiError that says what is wrong with the body */
  const triggerRequestOf = (request: FastifyRequest): TriggerRequest => {
    const trace = tracing?.contextOf(request) ?? traceContextOf(request.headers);
    return { payload: triggerPayload(request), requestId: request.id, ...trace };
  };

  /**
   * Accepts a request in one step where all of it is expected to be in order. Throws nothing that the key precedes.
   *
   * @returns undefined where it is not; a promise of as much when that is found out later
   */
  const acceptExpected = (request: FastifyRequest): Promise<Accepted | undefined> | undefined => {
    if (request.headers['idempotency-key'] !== undefined) return undefined;
    const expected = acceptance.expected(slugOf(request), apiKeyOf(request));
    if (!expected) return undefined;
    let trigger: TriggerRequest;
    try {
      trigger = triggerRequestOf(request);
    } catch {
      return undefined;
    }
    authenticated(request, expected.automation);
    request.acceptBy = acceptance.deadline();
    return acceptance.acceptExpected(expected, trigger, request.acceptBy);
  };

  const answer = (
    request: FastifyRequest,
    reply: FastifyReply,
    { runId, status, headers, isReplay }: Accepted,
  ): FastifyReply => {
    request.runId = runId;
    if (isReplay) metrics?.requestReplayed();
    else metrics?.runAccepted(slugOf(request), (performance.now() - request.receivedAt) / 1000);
    reply.code(202).header('cache-control', 'no-store').type(JSON_TYPE);
    if (headers) reply.headers(headers);
    return reply.send(JSON.stringify({ runId, status }));
  };

  const accept = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { automation, acceptBy } = request;
    if (!automation) throw new ApiError('internal_error', { cause: new Error('not authenticated') });
    const idempotencyKey = idempotencyKeyOf(request);
    // Whoever repeats a request to learn how its run stands is not limited for it; that is seen further on.
    if (idempotencyKey === undefined) await acceptance.checkRate(automation, acceptBy);
    const trigger = {
      ...triggerRequestOf(request),
      ...(idempotencyKey !== undefined && { idempotencyKey }),
    };
    return answer(request, reply, await acceptance.accept(automation, trigger, acceptBy));
  };

  await app.register(payloadPlugin);
  app.decorateRequest('accepted', undefined);
  // Before the api-key plugin's own hook, which has nothing left to do where this was successful.
  app.addHook('preHandler', (request, _reply, done) => {
    const accepting = acceptExpected(request);
    if (!accepting) return done();
    accepting.then((accepted) => {
      request.accepted = accepted;
      if (!accepted) authenticated(request, undefined);
      done();
    }, done);
  });
  await app.register(apiKeyPlugin, { acceptance });

  app.route({
    method: 'POST',
    url: '/orc/api/automation-triggers/:slug',
    schema: {
      operationId: 'triggerAutomation',
      summary: 'Start a run of an automation',
      description:
        "Starts a run of a pre-configured automation, with the automation's own API key. Use it when the work of that automation is to be done now, and once for every time it is to be done: each accepted request is a run with effects in the real world. The run is executed asynchronously: the answer is its identifier, not its result. The optional JSON object in the body becomes the run's trigger payload. Send an `Idempotency-Key` to retry without a second run, and to wait: the same request with the same key is answered with the current status of its run, until that is `succeeded`, `failed`, `timed_out` or `cancelled`. On 429 and 503, wait as many seconds as `Retry-After` says.",
      tags: ['Automations'],
      security: [{ apiKey: [] }],
      params: TriggerParamsSchema,
      headers: TriggerHeadersSchema,
      body: { $ref: 'TriggerPayload#' },
      response: {
        202: jsonResponse(
          'The run is accepted and queued; or, for a known `Idempotency-Key`, this is how its run stands now.',
          'AcceptedRun',
          { accepted: EXAMPLE, replayed: { ...EXAMPLE, status: 'succeeded' } },
          ACCEPTED_HEADERS,
        ),
        ...errorResponses(
          ...EVERY_REQUEST_ERRORS,
          'invalid_idempotency_key',
          'invalid_json',
          'invalid_payload',
          'missing_api_key',
          'invalid_api_key',
          'automation_disabled',
          'payload_too_large',
          'unsupported_media_type',
          'unsupported_content_encoding',
          'idempotency_key_reused',
          'too_many_failures',
          'rate_limited',
          'queue_unavailable',
          'queue_full',
        ),
      },
    },
    // A promise for each request would take longer where there is nothing left to wait for.
    handler: (request, reply) => {
      if (request.accepted) answer(request, reply, request.accepted);
      else return accept(request, reply);
    },
  });
}

function idempotencyKeyOf({ headers }: FastifyRequest): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || !IDEMPOTENCY_KEY.test(key)) throw new ApiError('invalid_idempotency_key');
  return key;
}
