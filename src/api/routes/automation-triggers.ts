import type { FastifyInstance } from 'fastify';
import { ApiError } from '../../core/errors.ts';
import type { Acceptance } from '../acceptance.ts';
import { apiKeyPlugin } from '../plugins/api-key.ts';
import { payloadPlugin, triggerPayload } from '../plugins/payload.ts';
import { EVERY_REQUEST_ERRORS, errorResponses, jsonResponse, TriggerParamsSchema } from '../schemas.ts';

interface AutomationTriggersOptions {
  acceptance: Acceptance;
}

const EXAMPLE = { runId: 'run_0195a2c4-7b1e-7f3a-9c5d-2e8f4a6b1c3d', status: 'queued' };

/** W3C Trace Context, section 3.2.2. */
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/**
 * `POST /orc/api/automation-triggers/{slug}`: starts a run. The order of checks is header, key, enabled, rate, body,
 * capacity; a request that is refused consumes nothing.
 */
export async function automationTriggersRoute(
  app: FastifyInstance,
  { acceptance }: AutomationTriggersOptions,
) {
  await app.register(payloadPlugin);
  await app.register(apiKeyPlugin, { acceptance });

  app.route({
    method: 'POST',
    url: '/orc/api/automation-triggers/:slug',
    schema: {
      operationId: 'triggerAutomation',
      summary: 'Start a run of an automation',
      description:
        "Starts a run of a pre-configured automation, with the automation's own API key. The run is accepted and executed asynchronously: the answer is its identifier, not its result. The optional JSON object in the body becomes the run's trigger payload.",
      tags: ['Automations'],
      security: [{ apiKey: [] }],
      params: TriggerParamsSchema,
      body: { $ref: 'TriggerPayload#' },
      response: {
        202: jsonResponse('The run is accepted and queued.', 'AcceptedRun', { accepted: EXAMPLE }),
        ...errorResponses(
          ...EVERY_REQUEST_ERRORS,
          'invalid_json',
          'invalid_payload',
          'missing_api_key',
          'invalid_api_key',
          'automation_disabled',
          'payload_too_large',
          'unsupported_media_type',
          'unsupported_content_encoding',
          'rate_limited',
          'queue_unavailable',
          'queue_full',
        ),
      },
    },
    // The slug and the body are judged after the key, by the plugins above; the schemas describe them.
    validatorCompiler: () => () => true,
    handler: async (request, reply) => {
      const { automation, acceptBy } = request;
      if (!automation) throw new ApiError('internal_error', { cause: new Error('not authenticated') });
      await acceptance.checkRate(automation, acceptBy);
      const payload = triggerPayload(request);
      const { traceparent } = request.headers;
      const isTraced = typeof traceparent === 'string' && TRACEPARENT.test(traceparent);
      const origin = { requestId: request.id, ...(isTraced && { traceparent }) };
      const run = await acceptance.accept(automation, payload, origin, acceptBy);
      request.runId = run.runId;
      return reply.code(202).header('cache-control', 'no-store').send(run);
    },
  });
}
