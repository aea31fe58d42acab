import { type Config, consoleUrlOf } from '../config.ts';
import { withDeadline } from '../core/deadline.ts';
import { type Logger, limitRepeats } from '../logger.ts';
import type { Ops } from '../ops/start-ops.ts';
import { connect, outageReporter, untilReady } from '../store/connect.ts';
import { createStore } from '../store/store.ts';
import { buildConsole } from './app.ts';

/** How long it waits for Redis before it listens, in milliseconds, so that the first page is not an error. */
const FIRST_CONNECTION_MS = 2000;

export interface RunningConsole {
  /** Where it listens, such as `http://127.0.0.1:3001`. */
  url: string;
  /** Answers the requests that were read, within `graceMs` milliseconds, and lets go of everything. Idempotent. */
  close(graceMs: number): Promise<void>;
}

/**
 * Starts the console process's work: listens, after a moment even without Redis.
 *
 * @throws when the address cannot be listened on
 */
export async function startConsole(
  config: Config,
  redisUrl: string,
  logger: Logger,
  { ops }: { ops?: Ops | undefined } = {},
): Promise<RunningConsole> {
  const outage = outageReporter({
    down: (err) => logger.error({ err }, 'redis is away: pages are answered 503 until it is back'),
    up: () => logger.info('redis is back'),
  });
  const redis = connect(redisUrl, 'fail-fast', outage.onError);
  outage.watch(redis);
  const onError = limitRepeats((err, count) => logger.warn({ err, count }, 'queue error'));
  const store = createStore(redis, config.REDIS_PREFIX, onError);
  const app = buildConsole({
    store,
    logger,
    settings: {
      url: consoleUrlOf(config),
      apiUrl: (config.PUBLIC_URL ?? `http://${config.HOST}:${config.PORT}`).replace(/\/$/, ''),
      version: config.version,
      bodyLimitBytes: config.BODY_LIMIT_BYTES,
      maxQueuedRuns: config.MAX_QUEUED_RUNS,
      runTimeoutMs: config.RUN_TIMEOUT_MS,
      keepBytes: config.KEEP_BYTES,
      trustedProxies: config.CONSOLE_TRUST_PROXY?.split(',').map((address) => address.trim()) ?? [],
      ...(config.CONSOLE_USER_HEADER !== undefined && { userHeader: config.CONSOLE_USER_HEADER }),
    },
  });

  let isListening = false;
  ops?.attach({
    store,
    // Without Redis it is ready all the same: its pages say what is wrong.
    notReadyBecause: () => (isListening ? undefined : 'The process is starting.'),
  });
  let url: string;
  try {
    await untilReady(redis, FIRST_CONNECTION_MS);
    url = await app.listen({ host: hostOf(config), port: config.CONSOLE_PORT });
  } catch (error) {
    await store.close();
    throw error;
  }
  isListening = true;
  logger.info({ url, version: config.version }, 'console listens');

  let closing: Promise<void> | undefined;
  return {
    url,
    close: (graceMs) => {
      closing ??= (async () => {
        await withDeadline(app.close(), graceMs).catch(() => app.server.closeAllConnections());
        await store.close();
        logger.info('console stopped');
      })();
      return closing;
    },
  };
}

/** For `localhost` Fastify would open a second server, for IPv6, which nothing here would know of. */
function hostOf({ CONSOLE_HOST }: Config): string {
  return CONSOLE_HOST === 'localhost' ? '127.0.0.1' : CONSOLE_HOST;
}
