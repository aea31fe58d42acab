import type { Server, ServerOptions } from 'node:http';
import { type TypeBoxTypeProvider, TypeBoxValidatorCompiler } from '@fastify/type-provider-typebox';
import { type FastifyHttpOptions, fastify, LogController } from 'fastify';
import type { Logger } from '../logger.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Tracing } from '../ops/tracing.ts';
import { readSite } from '../pages/site.ts';
import type { Store } from '../store/store.ts';
import { Connections } from './connections.ts';
import type { HealthMonitor } from './health-monitor.ts';
import { errorsPlugin, refuse, toApiError } from './plugins/errors.ts';
import { openapiPlugin } from './plugins/openapi.ts';
import { beginRequest, requestContextPlugin, requestIdOf } from './plugins/request-context.ts';
import type { RejectionTally } from './rejection-tally.ts';
import { type RejectionListener, RequestLog } from './request-log.ts';
import { type AcceptanceLimits, automationTriggersRoute } from './routes/automation-triggers.ts';
import { healthRoute } from './routes/health.ts';
import { machineReadableRoutes } from './routes/machine-readable.ts';
import { pagesRoutes } from './routes/pages.ts';
import { ApiServer } from './server.ts';
import { SocketErrors } from './socket-errors.ts';

export interface AppDependencies {
  store: Store;
  health: HealthMonitor;
  logger: Logger;
  settings: AppSettings;
  metrics?: Metrics | undefined;
  rejections?: RejectionTally;
  tracing?: Tracing | undefined;
  /** The app's connections, for shutdown. Default: its own, which nobody else sees. */
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
  const countRejection: RejectionListener = ({ params, automationSlug }, error) => {
    metrics?.requestRejected(error);
    const slug = slugOf(params);
    if (slug !== undefined) rejections?.count(slug, error, automationSlug !== undefined);
  };
  const log = new RequestLog(logger, countRejection);
  const socketErrors = new SocketErrors(connections, log, metrics);
  const serverOptions: ServerOptions = {
    requestTimeout: REQUEST_TIMEOUT_MS,
    headersTimeout: HEADERS_TIMEOUT_MS,
    connectionsCheckingInterval: TIMEOUT_CHECK_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    // Checked by the request-context plugin, which answers in the contract's shape.
    requireHostHeader: false,
    // Node silently drops the second of two equal headers.
    joinDuplicateHeaders: true,
  };
  const options: FastifyHttpOptions<Server> = {
    serverFactory: (handler) => new ApiServer(serverOptions, handler),
    loggerInstance: logger,
    // RequestLog writes the one line of a request.
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'requestId' }),
    genReqId: requestIdOf,
    bodyLimit: bodyLimitBytes,
    trustProxy: trustedProxies.length > 0 && trustedProxies,
    // A request that arrives on an open connection during shutdown is still answered properly.
    return503OnClosing: false,
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    clientErrorHandler: socketErrors.handle,
    // A target that cannot be decoded. Fastify runs no hooks for it.
    frameworkErrors: (error, request, reply) => {
      beginRequest(request, reply);
      log.watch(request, reply);
      const connection = connections.of(request.raw.socket);
      if (connection && reply.hasHeader('connection')) connection.isEnding = true;
      refuse(request, reply, toApiError(error));
    },
  };
  const app = fastify(options)
    .withTypeProvider<TypeBoxTypeProvider>()
    .setValidatorCompiler(TypeBoxValidatorCompiler);

  connections.attach(app.server);
  socketErrors.attach(app.server);
  app.addHook('onClose', async () => log.close());

  if (tracing) app.register(tracing.requests);
  app.register(errorsPlugin, { log });
  app.register(requestContextPlugin, { log, connections });
  app.register(openapiPlugin, { bodyLimitBytes });
  app.register(healthRoute, { health, version, ...(frontendUrl !== undefined && { frontendUrl }) });
  app.register(automationTriggersRoute, { store, health, limits: settings, metrics, tracing });
  const documents = { site: readSite(), ...(publicUrl !== undefined && { publicUrl }) };
  app.register(machineReadableRoutes, documents);
  app.register(pagesRoutes, documents);
  return app;
}

/** The slug that a request names, whatever becomes of it. */
function slugOf(params: unknown): string | undefined {
  if (typeof params !== 'object' || params === null || !('slug' in params)) return undefined;
  return typeof params.slug === 'string' ? params.slug : undefined;
}
