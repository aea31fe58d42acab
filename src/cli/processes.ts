import closeWithGrace from 'close-with-grace';
import { Command } from 'commander';
import { READY } from '../local/child.ts';
import { createLogger, flush, type Logger } from '../logger.ts';
import { type CommandContext, redisUrlOf } from './context.ts';

/** Beyond the grace period, time for what takes time to end, in milliseconds; then the process ends as it is. */
export const LAST_RESORT_MS = 10_000;

/** `orc api` and `orc worker`: the two kinds of process that make an installation. */
export function processCommands(context: CommandContext): Command[] {
  const api = new Command('api')
    .description('serve the HTTP API: one process of an installation')
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
