import { type Config, secretsOf } from '../config.ts';
import { READY } from '../local/child.ts';
import { createLogger, flush, type Logger } from '../logger.ts';
import type { Ops } from '../ops/start-ops.ts';
import type { Tracing } from '../ops/tracing.ts';
import { type Closer, closeInOrder } from './closing.ts';
import { type CommandContext, redisUrlOf } from './context.ts';
import { OrcCommand } from './orc-command.ts';

/** `orc api`, `orc worker` and `orc console`: the kinds of process of an installation. */
export function processCommands(context: CommandContext): OrcCommand[] {
  const api = new OrcCommand('api')
    .description('serve the HTTP API: one process of an installation')
    .moreHelp({
      notes: `Environment variables configure it, such as REDIS_URL, HOST, PORT, PUBLIC_URL and TRUST_PROXY; docs/configure.md
lists them all. On SIGTERM it answers every request it has read, within SHUTDOWN_GRACE_MS, and ends. A second signal more than half
a second later ends it at once.`,
      exitCodes: '0 ended by a signal, 1 could not start or failed, 2 usage error',
      examples: ['REDIS_URL=redis://127.0.0.1:6379 PUBLIC_URL=https://orc.example.com orc api'],
    })
    .action(async () => {
      const { config, logger, redisUrl, tracing } = await prepare('api', context);
      const { startApi } = await import('../api/start-api.ts');
      const ops = await opsOf(config, logger);
      const running = await startApi(config, redisUrl, logger, { ops, tracing }).catch(async (error) => {
        await ops?.close();
        await tracing?.close();
        throw error;
      });
      closeOnSignal(config.SHUTDOWN_GRACE_MS, logger, running, { ops, tracing });
      process.send?.(READY);
    });

  const worker = new OrcCommand('worker')
    .description('execute runs: one process of an installation')
    .moreHelp({
      notes: `Environment variables configure it, such as REDIS_URL, WORKER_CONCURRENCY and RUN_TIMEOUT_MS; docs/configure.md
lists them all. On SIGTERM it gives its runs SHUTDOWN_GRACE_MS to end and returns the rest to the queue. A second signal more than
half a second later ends it at once. On SIGUSR2 it drains: it takes no more runs and ends with its last one, however long
that takes; SIGTERM cuts that short.`,
      exitCodes: '0 ended by a signal, 1 could not start or failed, 2 usage error',
      examples: ['REDIS_URL=redis://127.0.0.1:6379 WORKER_CONCURRENCY=20 orc worker'],
    })
    .action(async () => {
      const { config, logger, redisUrl, tracing } = await prepare('worker', context);
      const { startWorker } = await import('../worker/start-worker.ts');
      const ops = await opsOf(config, logger);
      const running = startWorker(config, redisUrl, logger, { ops, tracing });
      const closer = closeOnSignal(config.SHUTDOWN_GRACE_MS, logger, running, {
        ops,
        tracing,
        except: 'SIGUSR2',
      });
      const onDrained = (err?: Error) => {
        if (err) logger.error({ err }, 'draining failed');
        closer.close();
      };
      // It stays: without a listener, the signal would end the process at once.
      process.on('SIGUSR2', () => void running.drain().then(() => onDrained(), onDrained));
      await running.ready;
      process.send?.(READY);
    });

  const console = new OrcCommand('console')
    .description('serve the automations screen, for operators in a browser: one process of an installation')
    .moreHelp({
      notes: `Environment variables configure it, such as REDIS_URL, CONSOLE_HOST, CONSOLE_PORT and CONSOLE_URL; docs/console.md
describes it. To let somebody in: \`orc operators add NAME --role viewer|admin\` prints a link that logs in once.`,
      exitCodes: '0 ended by a signal, 1 could not start or failed, 2 usage error',
      examples: ['REDIS_URL=redis://127.0.0.1:6379 CONSOLE_URL=https://console.example.com orc console'],
    })
    .action(async () => {
      const { config, logger, redisUrl, tracing } = await prepare('console', context);
      const { startConsole } = await import('../console/start-console.ts');
      const ops = await opsOf(config, logger);
      const running = await startConsole(config, redisUrl, logger, { ops }).catch(async (error) => {
        await ops?.close();
        await tracing?.close();
        throw error;
      });
      closeOnSignal(config.SHUTDOWN_GRACE_MS, logger, running, { ops, tracing });
      process.send?.(READY);
    });

  return [api, worker, console];
}

/** The process's private listener, if OPS_PORT asks for one. Its modules are loaded only then. */
async function opsOf(config: Config, logger: Logger): Promise<Ops | undefined> {
  const { OPS_PORT: port } = config;
  if (port === undefined) return undefined;
  const { startOps } = await import('../ops/start-ops.ts');
  return startOps(config, port, logger);
}

/** What every kind of process begins with. */
async function prepare(name: 'api' | 'worker' | 'console', context: CommandContext) {
  // On SIGUSR1 Node would open a debugger port, through which commands of the same user, and everybody on the machine,
  // could read the process's memory.
  process.on('SIGUSR1', () => undefined);
  const config = context.config();
  const logger = createLogger(config.LOG_LEVEL, name, secretsOf(config));
  const redisUrl = await redisUrlOf(context);
  const tracing =
    config.OTEL_EXPORTER_OTLP_ENDPOINT === undefined
      ? undefined
      : await (await import('../ops/tracing.ts')).startTracing(name, config, logger);
  return { config, logger, redisUrl, tracing };
}

/** Shuts the process down on SIGTERM and SIGINT, after an uncaught error, and when its parent is gone. */
function closeOnSignal(
  graceMs: number,
  logger: Logger,
  running: { close(graceMs: number): Promise<void> },
  parts: { ops: Ops | undefined; tracing: Tracing | undefined; except?: 'SIGUSR2' },
): Closer {
  const { ops, tracing, except } = parts;
  const closer = closeInOrder(
    { graceMs, ...(except && { except }), report: (message) => logger.error(message) },
    async ({ signal, err }) => {
      ops?.stopping();
      if (err) logger.fatal({ err }, 'unexpected error');
      else logger.info({ signal }, 'stopping');
      await running.close(graceMs);
      await tracing?.close();
      await ops?.close();
      await flush(logger);
    },
  );
  process.once('disconnect', closer.close);
  return closer;
}
