import closeWithGrace from 'close-with-grace';
import { Command } from 'commander';
import { READY } from '../local/child.ts';
import { createLogger, flush, type Logger } from '../logger.ts';
import { type CommandContext, redisUrlOf } from './context.ts';
import { helpText } from './help-text.ts';

/** Beyond the grace period, time for what takes time to end, in milliseconds; then the process ends as it is. */
export const LAST_RESORT_MS = 10_000;

/** `orc api` and `orc worker`: the two kinds of process that make an installation. */
export function processCommands(context: CommandContext): Command[] {
  const api = new Command('api')
    .description('serve the HTTP API: one process of an installation')
    .addHelpText(
      'after',
      helpText({
        notes: `Environment variables are its settings, such as REDIS_URL, HOST, PORT, PUBLIC_URL and TRUST_PROXY; README.md lists them
all. SIGTERM ends it when every request that it has read is answered, after SHUTDOWN_GRACE_MS at the latest.`,
        exitCodes: '0 ended by a signal, 1 it could not start or failed, 2 typed wrongly',
        examples: ['REDIS_URL=redis://127.0.0.1:6379 PUBLIC_URL=https://orc.example.com orc api'],
      }),
    )
    .action(async () => {
      const config = context.config();
      const logger = createLogger(config.LOG_LEVEL, 'api');
      const { startApi } = await import('../api/start-api.ts');
      const running = await startApi(config, await redisUrlOf(context), logger);
      closeOnSignal(config.SHUTDOWN_GRACE_MS, logger, () => running.close(config.SHUTDOWN_GRACE_MS));
      process.send?.(READY);
    });

  const worker = new Command('worker')
    .description('execute runs: one process of an installation')
    .addHelpText(
      'after',
      helpText({
        notes: `Environment variables are its settings, such as REDIS_URL, WORKER_CONCURRENCY and RUN_TIMEOUT_MS; README.md lists them
all. SIGTERM lets its runs end within SHUTDOWN_GRACE_MS and returns the rest to the queue.`,
        exitCodes: '0 ended by a signal, 1 it could not start or failed, 2 typed wrongly',
        examples: ['REDIS_URL=redis://127.0.0.1:6379 WORKER_CONCURRENCY=20 orc worker'],
      }),
    )
    .action(async () => {
      const config = context.config();
      const logger = createLogger(config.LOG_LEVEL, 'worker');
      const { startWorker } = await import('../worker/start-worker.ts');
      const running = startWorker(config, await redisUrlOf(context), logger);
      closeOnSignal(config.SHUTDOWN_GRACE_MS, logger, () => running.close(config.SHUTDOWN_GRACE_MS));
      await running.ready;
      process.send?.(READY);
    });

  return [api, worker];
}

/** Ends the process in order: on SIGTERM and SIGINT, on an error nobody caught, and when its parent is gone. */
function closeOnSignal(graceMs: number, logger: Logger, close: () => Promise<void>): void {
  const closer = closeWithGrace(
    { delay: graceMs + LAST_RESORT_MS, logger: { error: (message: unknown) => logger.error(message) } },
    async ({ signal, err }) => {
      if (err) logger.fatal({ err }, 'unexpected error');
      else logger.info({ signal }, 'stopping');
      await close();
      await flush(logger);
    },
  );
  process.once('disconnect', () => void closer.close());
}
