import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { type Config, processEnvironment } from '../config.ts';
import { withDeadline } from '../core/deadline.ts';
import type { Run } from '../core/run.ts';
import { type Logger, limitRepeats } from '../logger.ts';
import type { Ops } from '../ops/start-ops.ts';
import type { Tracing } from '../ops/tracing.ts';
import { connect, outageReporter, untilReady } from '../store/connect.ts';
import { createStore } from '../store/store.ts';
import { ALIVE_SECONDS, HEARTBEAT_MS } from '../store/workers.ts';
import { openActions } from './actions/actions.ts';
import { consumeRuns } from './consumer.ts';
import { sendEvents } from './event-sender.ts';
import { executeRun } from './execute-run.ts';
import { startGuard } from './guard/guard.ts';
import type { LockTiming } from './lease.ts';
import { openWorkFolders, sweepWorkFolders } from './work-folders.ts';
import { openWorkspaces } from './workspace/open-workspaces.ts';

const SECONDS_PER_DAY = 86_400;

/** How long the first sign of life waits for its connection, in milliseconds. */
const FIRST_BEAT_MS = 2000;

/** How long the end of sending is waited for when all runs have ended, in milliseconds. */
const SENDING_MS = 500;

export interface RunningWorker {
  id: string;
  /** Resolves when Redis is there and the first run can be taken. */
  ready: Promise<void>;
  /** Takes no more runs; resolves when those in progress have ended, however long that takes. Idempotent. */
  drain(): Promise<void>;
  /**
   * Takes no more runs, waits up to `graceMs` milliseconds for those in progress and returns the rest to the queue.
   * Idempotent. Ends some seconds after the grace at the latest, whatever state Redis is in.
   */
  close(graceMs: number): Promise<void>;
}

export interface WorkerOptions {
  timing?: LockTiming;
  /** The process's private listener. */
  ops?: Ops | undefined;
  tracing?: Tracing | undefined;
}

/** Starts the worker process's work. Returns at once; runs are taken as soon as Redis is there. */
export function startWorker(
  config: Config,
  redisUrl: string,
  logger: Logger,
  { timing, ops, tracing }: WorkerOptions = {},
): RunningWorker {
  const id = `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`;
  const guard = startGuard(id, logger);
  const workFolders = openWorkFolders(guard.removeAtEnd);
  const environment = processEnvironment();
  const workspaces = openWorkspaces(config, environment, id, guard.removeAtEnd);
  const reportLeftover = (err: Error) => logger.warn({ err }, 'what a dead worker left cannot be removed');
  void sweepWorkFolders(reportLeftover).catch(reportLeftover);
  void workspaces.sweep(reportLeftover).catch(reportLeftover);
  const outage = outageReporter({
    down: (err) => logger.error({ err }, 'redis is away: no runs are taken until it is back'),
    up: () => logger.info('redis is back'),
  });
  const redis = connect(redisUrl, 'patient', outage.onError);
  outage.watch(redis);
  // For the sign of life and whatever else is not part of a run: it fails while Redis is away instead of piling up.
  const sideConnection = connect(redisUrl, 'fail-fast', () => {});
  const onError = limitRepeats((err, count) => logger.warn({ err, count }, 'queue error'));
  const store = createStore(redis, config.REDIS_PREFIX, onError);
  const side = createStore(sideConnection, config.REDIS_PREFIX, onError);
  const retentionSeconds = config.RUN_RETENTION_DAYS * SECONDS_PER_DAY;

  const spending = {
    add: (automationId: string, amount: number) => side.agentCosts.add(automationId, amount),
    pause: (slug: string, reason: string) => side.automations.setPaused(slug, true, reason),
  };
  const dependencies = {
    runLogs: store.runLogs,
    artifacts: store.artifacts,
    logger,
    guard,
    actions: openActions({ config, environment, workFolders, workspaces, spending }),
    defaultTimeoutMs: config.RUN_TIMEOUT_MS,
    retentionSeconds,
    artifactLimitBytes: config.ARTIFACT_LIMIT_BYTES,
  };
  const onQueueError = (error: Error) => {
    // What the connection reports is reported once, by the outage reporter.
    if (redis.status === 'ready') onError(error);
  };
  const events = sendEvents({ events: side.events, config, logger, onError: onQueueError });
  const consumer = consumeRuns({
    store,
    side,
    workerId: id,
    concurrency: config.WORKER_CONCURRENCY,
    retentionLimits: {
      maxAgeMs: retentionSeconds * 1000,
      maxRuns: config.RUN_RETENTION_COUNT,
      keepBytes: config.KEEP_BYTES,
    },
    ...(timing && { timing }),
    telemetry: tracing?.runs,
    ...(ops && { onEnded: (run: Run) => ops.metrics.runEnded(run) }),
    onEvent: events.wake,
    onError: onQueueError,
    // The attempt is a part of the trace that its own span is in.
    execute: (run, ...conditions) =>
      executeRun(dependencies, { ...run, ...tracing?.context() }, ...conditions),
  });

  let isReady = false;
  let draining: Promise<void> | undefined;
  let beatAt = 0;
  const onHeard = () => {
    beatAt = Date.now();
  };
  const hasGit = workspaces.hasGit();
  const beat = async () => {
    const heard =
      draining !== undefined
        ? side.workers.beatDraining(id)
        : side.workers.beat(id, config.WORKER_CONCURRENCY);
    await heard.then(onHeard, () => undefined);
    if (draining === undefined && !(await hasGit)) await side.workers.lacksGit(id).catch(() => undefined);
  };
  ops?.attach({
    store: side,
    notReadyBecause: () => {
      if (draining !== undefined) return 'The worker drains.';
      const isHeard = Date.now() - beatAt < ALIVE_SECONDS * 1000;
      return isReady && isHeard ? undefined : 'Redis does not answer.';
    },
  });
  const heartbeat = setInterval(beat, HEARTBEAT_MS);
  const ready = consumer.ready().then(async () => {
    // The other connection is there a moment earlier or later.
    await untilReady(sideConnection, FIRST_BEAT_MS);
    await beat();
    isReady = true;
    logger.info({ worker: id, concurrency: config.WORKER_CONCURRENCY }, 'worker takes runs');
  });

  let closing: Promise<void> | undefined;
  return {
    id,
    ready,
    drain: () => {
      if (!draining) {
        logger.info(
          { worker: id },
          'draining: no more runs are taken, and the worker ends with its last one',
        );
        draining = consumer.drain();
        void beat();
      }
      return draining;
    },
    close: (graceMs) => {
      closing ??= (async () => {
        clearInterval(heartbeat);
        const sending = events.close(graceMs);
        await consumer
          .close(graceMs)
          .catch((err) => logger.warn({ err }, 'redis is away: runs in progress go to another worker later'));
        // It hangs where Redis does.
        await withDeadline(sending, SENDING_MS).catch(() => undefined);
        await guard.close();
        await workFolders.close();
        await workspaces.close();
        await withDeadline(side.workers.leave(id), 500).catch(() => {});
        await store.close();
        await side.close();
        logger.info('worker stopped');
      })();
      return closing;
    },
  };
}
