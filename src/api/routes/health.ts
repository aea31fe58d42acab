import type { FastifyInstance } from 'fastify';
import { type ErrorBody, errorBody } from '../../core/errors.ts';
import type { HealthMonitor, HealthSample } from '../health-monitor.ts';
import { EVERY_REQUEST_ERRORS, errorResponses, jsonResponse, RETRY_AFTER } from '../schemas.ts';

interface HealthRouteOptions {
  health: HealthMonitor;
  version: string;
  frontendUrl?: string;
}

const EXAMPLE = { status: 'ok', timestamp: '2026-01-31T12:00:00.000Z', version: '1.0.0' };

/** `GET /orc/health`: liveness and version, for uptime monitors. Answers from memory, never from Redis. */
export async function healthRoute(
  app: FastifyInstance,
  { health, version, frontendUrl }: HealthRouteOptions,
) {
  const report = ({ status, checkedAt }: HealthSample) => ({
    status,
    timestamp: checkedAt,
    version,
    ...(frontendUrl !== undefined && { frontendUrl }),
  });
  const unhealthy = (sample: HealthSample): ErrorBody & ReturnType<typeof report> => ({
    ...errorBody('queue_unavailable'),
    ...report(sample),
  });
  app.route({
    method: 'GET',
    url: '/orc/health',
    schema: {
      operationId: 'getHealth',
      summary: 'Check whether the service is up',
      description:
        'Reports liveness and the version of the orchestrator. Use it for uptime monitoring, and before a trigger only to tell an outage from a mistake of your own: any status but 200 means that no run can be accepted, and `degraded` that runs wait because no worker is alive. It needs no authentication, and may be polled as often as you like. It says nothing about a single run; for that, repeat its trigger with the same `Idempotency-Key`.',
      tags: ['Health'],
      response: {
        200: jsonResponse('The service accepts runs.', 'HealthReport', {
          ok: { ...EXAMPLE, frontendUrl: 'https://app.example.com' },
          degraded: { ...EXAMPLE, status: 'degraded' },
        }),
        503: jsonResponse(
          'The service is up, but cannot accept runs: its queue takes no writes.',
          'UnhealthyReport',
          { unavailable: { ...errorBody('queue_unavailable'), ...EXAMPLE, status: 'unavailable' } },
          RETRY_AFTER,
        ),
        ...errorResponses(...EVERY_REQUEST_ERRORS),
      },
    },
    handler: (request, reply) => {
      const sample = health.latest;
      reply.header('cache-control', 'no-store');
      if (sample.status !== 'unavailable') return reply.send(report(sample));
      request.errorId = 'queue_unavailable';
      return reply.code(503).header('retry-after', 2).send(unhealthy(sample));
    },
  });
}
