import type { Server } from 'node:http';
import { type TypeBoxTypeProvider, TypeBoxValidatorCompiler } from '@fastify/type-provider-typebox';
import { type FastifyHttpOptions, type FastifyRequest, fastify } from 'fastify';
import type { ErrorId } from '../core/errors.ts';
import { type Logger, loggablePath } from '../logger.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Tracing } from '../ops/tracing.ts';
import { readSite } from '../pages/site.ts';
import type { Store } from '../store/store.ts';
import { Connections } from './connections.ts';
import type { HealthMonitor } from './health-monitor.ts';
import { errorsPlugin, sendError, toApiError } from './plugins/errors.ts';
import { openapiPlugin } from './plugins/openapi.ts';
import { requestContextPlugin, requestIdOf } from './plugins/request-context.ts';
import type { RejectionTally } from './rejection-tally.ts';
import { RequestLog } from './request-log.ts';
import { type AcceptanceLimits, automationTriggersRoute } from './routes/automation-triggers.ts';
import { healthRoute } from './routes/health.ts';
import { machineReadableRoutes } from './routes/machine-readable.ts';
import { pagesRoutes } from './routes/pages.ts';
import { SocketErrors } from './socket-errors.ts';

export interface AppDependencies {
  store: Store;
  health: HealthMonitor;
  logger: Logger;
  settings: AppSettings;
  metrics?: Metrics | undefined;
  rejections?: RejectionTally;
  tracing?: Tracing | undefined;
  /** For who wants to know of the app's connections. */
  connections?: Connections;
}

export interface AppSettings extends AcceptanceLimits {
  bodyLimitBytes: number;
  version: string;
  publicUrl?: string;
  frontendUrl?: string;
  /** Addresses and networks of proxies whose X-Forwarded-* headers are believed. */
  trustedProxies: string[];
}

/** Milliseconds a client may take to send a request: its headers, and the whole of it. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;

/** How often Node looks for clients whose time is over, in milliseconds. */
const TIMEOUT_CHECK_MS = 1000;

/** Longer than the usual 60 s of load balancers, so that it is never this side that closes a connection in use. */
const KEEP_ALIVE_TIMEOUT_MS = 72_000;

/** No path parameter is too long to be a wrong slug; the header limit of 16 KiB ends it. */
const MAX_PARAM_LENGTH = 16_384;

/** The API as a Fastify instance with every option it has in production. It does not listen. */
export function buildApp({
  store,
  health,
  logger,
  settings,
  metrics,
  rejections,
  tracing,
  connections = new Connections(),
}: AppDependencies) {
  const { bodyLimitBytes, version, publicUrl, frontendUrl, trustedProxies } = settings;
  const log = new RequestLog(logger);
  const socketErrors = new SocketErrors(connections, log, metrics);
  const options: FastifyHttpOptions<Server> = {
    // RequestLog writes what is to be said of requests. With a logger of its own, Fastify would listen for the end of each
    // response as well, which is 7 % of a health check's CPU.
    logger: false,
    genReqId: requestIdOf,
    bodyLimit: bodyLimitBytes,
    trustProxy: trustedProxies.length > 0 && trustedProxies,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    // A request that arrives on an open connection during shutdown is still answered properly.
    return503OnClosing: false,
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    http: {
      // Checked by the request-context plugin, which answers in the contract's shape.
      requireHostHeader: false,
      // Of a header given twice Node would drop the second one, and nobody could tell.
      joinDuplicateHeaders: true,
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_MS,
    },
    clientErrorHandler: socketErrors.handle,
    frameworkErrors: (error, request, reply) => {
      reply.header('x-request-id', request.id);
      const apiError = toApiError(error);
      sendError(request, reply, apiError);
      metrics?.requestRejected(apiError.id);
      const { id: requestId, method, url } = request;
      const path = loggablePath(url);
      log.refused(apiError.id, 'request', { requestId, method, path, durationMs: reply.elapsedTime });
    },
  };
  const app = fastify(options)
    .withTypeProvider<TypeBoxTypeProvider>()
    .setValidatorCompiler(TypeBoxValidatorCompiler);

  connections.attach(app.server);
  socketErrors.attach(app.server);
  // Node would silently drop what comes after 2,000 headers; their size is limited anyway.
  app.server.maxHeadersCount = 0;
  app.addHook('onClose', async () => log.close());

  if (tracing) app.register(tracing.requests);
  app.register(errorsPlugin, { log });
  app.register(requestContextPlugin, {
    log,
    connections,
    onRejected: ({ params, automationSlug }: FastifyRequest, error: ErrorId) => {
      metrics?.requestRejected(error);
      const { slug } = (params ?? {}) as { slug?: string };
      if (slug !== undefined) rejections?.count(slug, error, automationSlug !== undefined);
    },
  });
  app.register(openapiPlugin, { bodyLimitBytes });
  app.register(healthRoute, { health, version, ...(frontendUrl !== undefined && { frontendUrl }) });
  app.register(automationTriggersRoute, { store, health, limits: settings, metrics, tracing });
  const documents = { site: readSite(), ...(publicUrl !== undefined && { publicUrl }) };
  app.register(machineReadableRoutes, documents);
  app.register(pagesRoutes, documents);
  return app;
}
