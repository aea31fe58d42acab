import type { Config } from '../config.ts';
import { withDeadline } from '../core/deadline.ts';
import { type Logger, limitRepeats } from '../logger.ts';
import type { Ops } from '../ops/start-ops.ts';
import type { Tracing } from '../ops/tracing.ts';
import { connect, outageReporter } from '../store/connect.ts';
import { createStore } from '../store/store.ts';
import { buildApp } from './app.ts';
import { Connections } from './connections.ts';
import { Drain } from './drain.ts';
import { HealthMonitor } from './health-monitor.ts';
import { RejectionTally } from './rejection-tally.ts';

export interface RunningApi {
  /** Where it listens, such as `http://127.0.0.1:3000`. */
  url: string;
  /** Answers every request that was read, within `graceMs` milliseconds, and lets go of everything. Idempotent. */
  close(graceMs: number): Promise<void>;
}

export interface ApiOptions {
  /** The process's private listener. */
  ops?: Ops | undefined;
  tracing?: Tracing | undefined;
}

/**
 * Starts the API process's work: listens, whether Redis is there or not.
 *
 * @throws when the address cannot be listened on
 */
export async function startApi(
  config: Config,
  redisUrl: string,
  logger: Logger,
  { ops, tracing }: ApiOptions = {},
): Promise<RunningApi> {
  const outage = outageReporter({
    down: (err) => logger.error({ err }, 'redis is away: triggers are answered 503 until it is back'),
    up: () => logger.info('redis is back'),
  });
  const redis = connect(redisUrl, 'fail-fast', outage.onError);
  outage.watch(redis);
  const onError = limitRepeats((err, count) => logger.warn({ err, count }, 'queue error'));
  const store = createStore(redis, config.REDIS_PREFIX, onError);
  const health = new HealthMonitor(store, (from, { status, workersAlive }, err) =>
    logger[status === 'ok' ? 'info' : 'warn']({ from, status, workersAlive, err }, 'health changed'),
  );
  const connections = new Connections();
  const rejections = new RejectionTally(store);
  const app = buildApp({
    connections,
    store,
    health,
    logger,
    metrics: ops?.metrics,
    rejections,
    tracing,
    settings: {
      bodyLimitBytes: config.BODY_LIMIT_BYTES,
      acceptTimeoutMs: config.ACCEPT_TIMEOUT_MS,
      maxQueuedRuns: config.MAX_QUEUED_RUNS,
      version: config.version,
      trustedProxies: config.TRUST_PROXY?.split(',').map((address) => address.trim()) ?? [],
      ...(config.PUBLIC_URL !== undefined && { publicUrl: config.PUBLIC_URL }),
      ...(config.FRONTEND_URL !== undefined && { frontendUrl: config.FRONTEND_URL }),
    },
  });
  const drain = new Drain(app.server, connections);

  const release = async () => {
    health.close();
    await rejections.close();
    await store.close();
  };
  let isListening = false;
  ops?.attach({
    store,
    notReadyBecause: () => {
      if (!isListening) return 'The process is starting.';
      return health.latest.status === 'unavailable' ? 'Redis takes no writes.' : undefined;
    },
  });
  let url: string;
  try {
    await health.start();
    url = await app.listen({ host: hostOf(config), port: config.PORT });
  } catch (error) {
    await release();
    throw error;
  }
  isListening = true;
  logger.info({ url, version: config.version }, 'api listens');

  let closing: Promise<void> | undefined;
  return {
    url,
    close: (graceMs) => {
      closing ??= (async () => {
        const endDrain = drain.start(graceMs);
        await withDeadline(app.close(), graceMs).catch(() => app.server.closeAllConnections());
        endDrain();
        await release();
        logger.info('api stopped');
      })();
      return closing;
    },
  };
}

/** For `localhost` Fastify would open a second server, for IPv6, which nothing here would know of. */
function hostOf({ HOST }: Config): string {
  return HOST === 'localhost' ? '127.0.0.1' : HOST;
}
