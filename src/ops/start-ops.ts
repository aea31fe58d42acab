import { fastify, type onRequestAsyncHookHandler } from 'fastify';
import type { Config } from '../config.ts';
import { withDeadline } from '../core/deadline.ts';
import { isLoopback } from '../core/loopback.ts';
import type { Logger } from '../logger.ts';
import type { Store } from '../store/store.ts';
import { asksForLoopback } from './asks-for-loopback.ts';
import { Metrics } from './metrics.ts';
import { QueueMetrics } from './queue-metrics.ts';

/** Time for requests in progress to be answered at the end, in milliseconds. */
const CLOSE_MS = 500;

const REQUEST_TIMEOUT_MS = 10_000;

const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

const WRONG_HOST = { statusCode: 403, message: 'Ask for localhost, or set OPS_HOST to let others in.' };

/** What the process that the listener belongs to says of itself. */
export interface OpsSubject {
  store: Store;
  /** Why the process takes no work now, in one sentence; undefined when it does. */
  notReadyBecause(): string | undefined;
}

export interface Ops {
  /** Where it listens, such as `http://127.0.0.1:9464`. */
  url: string;
  metrics: Metrics;
  /** Until then the process is alive and not ready. */
  attach(subject: OpsSubject): void;
  /** From now on the process is not ready. */
  stopping(): void;
  /** Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts the private listener of a process: `/metrics`, `/live` and `/ready`.
 *
 * @param port 0 for any that is free
 * @throws when the address cannot be listened on
 */
export async function startOps(config: Config, port: number, logger: Logger): Promise<Ops> {
  const metrics = new Metrics();
  let subject: (OpsSubject & { queueMetrics: QueueMetrics }) | undefined;
  let isStopping = false;
  const notReadyBecause = () => {
    if (isStopping) return 'The process is stopping.';
    return subject ? subject.notReadyBecause() : 'The process is starting.';
  };

  const app = fastify({ forceCloseConnections: true, requestTimeout: REQUEST_TIMEOUT_MS });
  app.addHook('onSend', async (_request, reply) => {
    reply.header('cache-control', 'no-store');
  });
  // Whoever is let in from elsewhere asks for a name that only its network knows.
  const isPrivate = isLoopback(config.OPS_HOST);
  const onRequest: onRequestAsyncHookHandler = async (request, reply) => {
    if (isPrivate && !asksForLoopback(request)) return reply.code(403).send(WRONG_HOST);
  };
  app.get('/live', { onRequest }, async () => ({ status: 'live' }));
  app.get('/ready', { onRequest }, async (_request, reply) => {
    const reason = notReadyBecause();
    if (reason === undefined) return { status: 'ready' };
    return reply.code(503).send({ status: 'not_ready', reason });
  });
  app.get('/metrics', { onRequest }, async (_request, reply) => {
    const [own, queue = ''] = await Promise.all([metrics.read(), subject?.queueMetrics.read()]);
    return reply.type(METRICS_TYPE).send(own + queue);
  });

  const close = async () => {
    metrics.close();
    await withDeadline(app.close(), CLOSE_MS).catch(() => app.server.closeAllConnections());
  };
  let url: string;
  try {
    url = await app.listen({ host: config.OPS_HOST, port });
  } catch (error) {
    await close();
    throw error;
  }
  logger.info({ url }, 'ops listens');

  let closing: Promise<void> | undefined;
  return {
    url,
    metrics,
    attach: (attached) => {
      subject = { ...attached, queueMetrics: new QueueMetrics(attached.store) };
    },
    stopping: () => {
      isStopping = true;
    },
    close: () => {
      closing ??= close();
      return closing;
    },
  };
}
