import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox';
import { ApiError } from '../../core/errors.ts';
import type { Metrics } from '../../ops/metrics.ts';
import type { Tracing } from '../../ops/tracing.ts';
import { newRunId } from '../../store/run-id.ts';
import type { Store } from '../../store/store.ts';
import type { HealthMonitor } from '../health-monitor.ts';
import { apiKeyPlugin } from '../plugins/api-key.ts';
import { payloadPlugin } from '../plugins/payload.ts';
import { prefersRepresentation } from '../prefer.ts';
import { runRepresentation } from '../run-representation.ts';
import { traceContextOf } from '../trace-context.ts';
import { triggerOperation } from '../trigger-operation.ts';
import { answerOf, throwUnaccepted } from '../verdict-answer.ts';

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

/** `POST /orc/api/automation-triggers/{slug}`: starts a run. A request that is refused consumes nothing. */
export const automationTriggersRoute: FastifyPluginAsyncTypebox<AutomationTriggersOptions> = async (
  app,
  { store, health, limits, metrics, tracing },
) => {
  const { acceptTimeoutMs, maxQueuedRuns } = limits;
  await app.register(payloadPlugin);
  await app.register(apiKeyPlugin, { automations: store.automations, health, acceptTimeoutMs });

  app.post('/orc/api/automation-triggers/:slug', {
    schema: triggerOperation,
    attachValidation: true,
    preHandler: app.checkApiKey,
    handler: async (request, reply) => {
      const { automation, payload, caller, id: requestId } = request;
      if (!automation) throw new ApiError('internal_error', { cause: new Error('not authenticated') });
      const idempotencyKey = request.headers['idempotency-key'];
      const trace = tracing?.contextOf(request) ?? traceContextOf(request.headers);
      const newRun = { id: newRunId(), payload, requestId, ...trace, idempotencyKey, caller };
      const accepting = store.runs.accept(automation, newRun, { endsAt: request.acceptBy, maxQueuedRuns });
      const verdict = await accepting.catch(throwUnaccepted);
      // The key was revoked since it was checked: the request counts as one without a valid key.
      if (verdict.status === 'rejected') request.automationSlug = undefined;
      const { runId, status, headers } = answerOf(verdict, automation);
      request.runId = runId;
      if (verdict.status === 'replayed') metrics?.requestReplayed();
      else metrics?.runAccepted(automation.slug, (performance.now() - request.receivedAt) / 1000);
      reply.code(202).header('cache-control', 'no-store').headers(headers);
      const run = verdict.status === 'replayed' ? verdict.run : undefined;
      if (!run || !prefersRepresentation(request.headers.prefer)) return reply.send({ runId, status });
      const representation = await runRepresentation(store, run, request.acceptBy).catch(throwUnaccepted);
      // The run has not ended.
      if (representation === undefined) return reply.send({ runId, status });
      return reply
        .header('preference-applied', 'return=representation')
        .type('application/json; charset=utf-8')
        .send(representation);
    },
  });
};
