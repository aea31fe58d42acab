import { type Config, consoleUrlOf } from '../config.ts';
import { DeadlineError, withDeadline } from '../core/deadline.ts';
import { errorText } from '../core/error-record.ts';
import { parseRedisUrl, type RedisAddress } from '../core/redis-url.ts';
import { thisOperator } from '../core/this-operator.ts';
import { findLocal } from '../local/find-local.ts';
import { refusalIn, refusalText } from '../store/redis-refusal.ts';
import type { Store } from '../store/store.ts';
import { CommandError, type Output, type TerminalInput, type TerminalOutput } from './output.ts';

/** What every command gets. */
export interface CommandContext {
  /** Reads the environment on the first call, so that `--help` works with any environment. */
  config(): Config;
  /** For what passes parts of the environment to child processes; everything else asks `config`. */
  env: Readonly<NodeJS.ProcessEnv>;
  output: Output;
  /** Standard input, opened on the first call. */
  stdin(): TerminalInput;
  /** For questions; results are printed by `output`. */
  stdout: TerminalOutput;
  /** The working directory. */
  directory: string;
  /** The state folder, which records this user's data folders. */
  stateDir(): string;
}

/** How long Redis may take to answer first, in milliseconds. */
const REDIS_DEADLINE_MS = 5000;

/**
 * REDIS_URL, or the Redis of a running `orc local`.
 *
 * @throws CommandError when there is neither
 */
export async function redisUrlOf({ config, directory, stateDir }: CommandContext): Promise<string> {
  const { REDIS_URL } = config();
  if (REDIS_URL !== undefined) return REDIS_URL;
  const { running, refused } = await findLocal(directory, stateDir());
  if (running) return running.redisUrl;
  const ignored = refused.map((reason) => `\nIgnored: ${reason}`).join('');
  throw new CommandError('There is no Redis.', {
    error: 'redis_unavailable',
    hint: `Start \`orc local\` in this folder, or set REDIS_URL.${ignored}`,
  });
}

/** The origin of the API, as far as this machine knows. */
export async function originFor({ config, directory, stateDir }: CommandContext): Promise<string> {
  const { PUBLIC_URL, HOST, PORT } = config();
  const url =
    PUBLIC_URL ?? (await findLocal(directory, stateDir())).running?.apiUrl ?? `http://${HOST}:${PORT}`;
  return url.replace(/\/$/, '');
}

/** The origin of the console, as far as this machine knows. */
export async function consoleUrlFor({ config, directory, stateDir }: CommandContext): Promise<string> {
  const settings = config();
  const local = settings.CONSOLE_URL === undefined ? await findLocal(directory, stateDir()) : undefined;
  return local?.running?.consoleUrl ?? consoleUrlOf(settings);
}

/**
 * Opens the store for one command and closes it afterwards. What the command changes is in the audit log.
 *
 * @param deadlineMs how long Redis may take to answer first, in milliseconds
 * @throws CommandError when Redis cannot be used
 */
export async function withStore<T>(
  context: CommandContext,
  use: (store: Store) => Promise<T>,
  deadlineMs = REDIS_DEADLINE_MS,
): Promise<T> {
  const url = await redisUrlOf(context);
  // Loaded when needed, so that `--help` and usage errors are fast.
  const { connect, withoutPassword } = await import('../store/connect.ts');
  const { auditedStore } = await import('../store/audited-store.ts');
  const { createStore } = await import('../store/store.ts');
  let lastError: Error | undefined;
  const redis = connect(url, 'one-shot', (error) => {
    lastError = error;
  });
  const store = auditedStore(
    createStore(redis, context.config().REDIS_PREFIX, () => undefined),
    thisOperator(),
    (error) =>
      context.output.err(
        `orc: The change is made, but is not in the audit log: ${refusalText((error as Error).message)}\n`,
      ),
  );
  try {
    // A command with a key reaches the cluster node that holds orc's keys, and needs the right to them.
    await withDeadline(redis.exists(store.keys.automations), deadlineMs);
  } catch (error) {
    // Disconnecting an ended client would keep the process alive for a while.
    if (redis.status !== 'end') redis.disconnect();
    const silent = error instanceof DeadlineError && `it did not answer within ${deadlineMs / 1000} s`;
    const reason = lastError?.message ?? (silent || (error as Error).message);
    throw new CommandError(`Redis at ${withoutPassword(url)} cannot be used: ${errorText(reason)}.`, {
      cause: error,
      error: 'redis_unavailable',
      hint: `Check ${whatToCheck(parseRedisUrl(url))}.`,
    });
  }
  try {
    return await use(store);
  } catch (error) {
    const refusal = refusalIn(error);
    if (!refusal || error instanceof CommandError) throw error;
    const { message, cure } = refusal;
    throw new CommandError(`Redis refused a command: ${message}.`, {
      cause: error,
      error: 'redis_unavailable',
      hint: `The cure: ${cure}. See: orc doctor`,
    });
  } finally {
    await store.close();
  }
}

function whatToCheck({ topology, tls }: RedisAddress): string {
  const checks = {
    single: 'that it runs',
    socket: 'that it runs',
    sentinel: 'that the Sentinels and the master they name run and are reachable from here',
    cluster: 'that the nodes run and are reachable from here at the addresses they announce',
  };
  const certificate = tls ? ', that NODE_EXTRA_CA_CERTS names the file of a private CA' : '';
  return `${checks[topology]}${certificate} and that REDIS_URL is right`;
}
