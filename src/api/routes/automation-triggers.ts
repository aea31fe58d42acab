import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import { ApiError } from '../../core/errors.ts';
import type { Metrics } from '../../ops/metrics.ts';
import type { Tracing } from '../../ops/tracing.ts';
import { newRunId } from '../../store/run-id.ts';
import type { Store } from '../../store/store.ts';
import type { HealthMonitor } from '../health-monitor.ts';
import { apiKeyPlugin } from '../plugins/api-key.ts';
import { payloadPlugin } from '../plugins/payload.ts';
import {
  ACCEPTED_HEADERS,
  EVERY_REQUEST_ERRORS,
  errorResponses,
  jsonResponse,
  TriggerHeadersSchema,
  TriggerParamsSchema,
  TriggerPayloadSchema,
} from '../schemas.ts';
import { traceContextOf } from '../trace-context.ts';
import { answerOf, unacceptedError } from '../verdict-answer.ts';

interface AutomationTriggersOptions {
  store: Store;
  health: HealthMonitor;
  limits: AcceptanceLimits;
  metrics: Metrics | undefined;
  tracing: Tracing | undefined;
}

export interface AcceptanceLimits {
  /** Milliseconds that Redis may take for all questions of one request together. */
  acceptTimeoutMs: number;
  /** Runs that may wait to be executed. */
  maxQueuedRuns: number;
}

const EXAMPLE = { runId: 'run_0195a2c4-7b1e-7f3a-9c5d-2e8f4a6b1c3d', status: 'queued' };

const schema = {
  operationId: 'triggerAutomation',
  summary: 'Start a run of an automation',
  description:
    "Starts a run of a pre-configured automation, with the automation's own API key. Use it when the work of that automation is to be done now, and once for every time it is to be done: each accepted request is a run with effects in the real world. The run is executed asynchronously: the answer is its identifier, not its result. The optional JSON object in the body becomes the run's trigger payload. Send an `Idempotency-Key` to retry without a second run, and to wait: the same request with the same key is answered with the current status of its run, until that is `succeeded`, `failed`, `timed_out` or `cancelled`. On 429 and 503, wait as many seconds as `Retry-After` says.",
  tags: ['Automations'],
  security: [{ apiKey: [] }],
  params: TriggerParamsSchema,
  headers: TriggerHeadersSchema,
  body: TriggerPayloadSchema,
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
};

/** `POST /orc/api/automation-triggers/{slug}`: starts a run. A request that is refused consumes nothing. */
export const automationTriggersRoute: FastifyPluginAsyncTypebox<AutomationTriggersOptions> = async (
  app,
  { store, health, limits, metrics, tracing },
) => {
  const { acceptTimeoutMs, maxQueuedRuns } = limits;
  await app.register(payloadPlugin);
  await app.register(apiKeyPlugin, { automations: store.automations, health, acceptTimeoutMs });

  app.post('/orc/api/automation-triggers/:slug', {
    schema,
    attachValidation: true,
    preHandler: app.checkApiKey,
    handler: async (request, reply) => {
      const { automation, payload, caller, id: requestId } = request;
      if (!automation) throw new ApiError('internal_error', { cause: new Error('not authenticated') });
      const idempotencyKey = request.headers['idempotency-key'];
      const trace = tracing?.contextOf(request) ?? traceContextOf(request.headers);
      const run = { id: newRunId(), payload, requestId, ...trace, idempotencyKey, caller };
      const accepting = store.runs.accept(automation, run, { endsAt: request.acceptBy, maxQueuedRuns });
      const verdict = await accepting.catch((cause) => {
        throw unacceptedError(cause);
      });
      const { runId, status, headers } = answerOf(verdict, automation);
      request.runId = runId;
      if (verdict.status === 'replayed') metrics?.requestReplayed();
      else metrics?.runAccepted(automation.slug, (performance.now() - request.receivedAt) / 1000);
      return reply.code(202).header('cache-control', 'no-store').headers(headers).send({ runId, status });
    },
  });
};
