import type { Config } from '../config.ts';
import { DeadlineError, withDeadline } from '../core/deadline.ts';
import { errorText } from '../core/error-record.ts';
import { parseRedisUrl, type RedisAddress } from '../core/redis-url.ts';
import { findLocal } from '../local/find-local.ts';
import type { Store } from '../store/store.ts';
import { CommandError, type Output } from './output.ts';

/** What every command works with. */
export interface CommandContext {
  /** Reads the environment when a command needs it, so that `--help` works in any. */
  config(): Config;
  output: Output;
  /** Directory in which the command was typed. */
  directory: string;
  /** Where orc keeps what it knows of this user's data folders. */
  stateDir(): string;
}

/** A Redis that does not answer within this time is taken for one that cannot be used, in milliseconds. */
const REDIS_DEADLINE_MS = 5000;

/**
 * The Redis to work with: REDIS_URL, or that of a running `orc local`.
 *
 * @throws CommandError when there is neither
 */
export async function redisUrlOf({ config, directory, stateDir }: CommandContext): Promise<string> {
  const { REDIS_URL } = config();
  if (REDIS_URL !== undefined) return REDIS_URL;
  const { running, refused } = await findLocal(directory, stateDir());
  if (running) return running.redisUrl;
  const passedOver = refused.map((reason) => `\nPassed over: ${reason}`).join('');
  throw new CommandError(
    `No Redis to work with: start \`orc local\` in this folder, or set REDIS_URL.${passedOver}`,
  );
}

/** The origin under which the API can be reached, as far as this machine knows. */
export async function originFor({ config, directory, stateDir }: CommandContext): Promise<string> {
  const { PUBLIC_URL, HOST, PORT } = config();
  const url =
    PUBLIC_URL ?? (await findLocal(directory, stateDir())).running?.apiUrl ?? `http://${HOST}:${PORT}`;
  return url.replace(/\/$/, '');
}

/**
 * Opens the store for one command and closes it afterwards.
 *
 * @param deadlineMs how long Redis may take to answer for the first time, in milliseconds
 * @throws CommandError when Redis cannot be reached
 */
export async function withStore<T>(
  context: CommandContext,
  use: (store: Store) => Promise<T>,
  deadlineMs = REDIS_DEADLINE_MS,
): Promise<T> {
  const url = await redisUrlOf(context);
  // Loaded when it is needed, like all that takes long to load, so that `--help` and typing errors are answered at once.
  const { connect, withoutPassword } = await import('../store/connect.ts');
  const { createStore } = await import('../store/store.ts');
  let lastError: Error | undefined;
  const redis = connect(url, 'one-shot', (error) => {
    lastError = error;
  });
  const store = createStore(redis, context.config().REDIS_PREFIX, () => undefined);
  try {
    // A question about a key is answered by the node of a cluster that holds orc's keys, and only with the right to them.
    await withDeadline(redis.exists(store.keys.automations), deadlineMs);
  } catch (error) {
    // Disconnecting what has ended would keep the process alive for a while.
    if (redis.status !== 'end') redis.disconnect();
    const silent = error instanceof DeadlineError && `it did not answer within ${deadlineMs / 1000} s`;
    const reason = lastError?.message ?? (silent || (error as Error).message);
    throw new CommandError(
      `Redis at ${withoutPassword(url)} cannot be used: ${errorText(reason)}. Check ${whatToCheck(parseRedisUrl(url))}.`,
      { cause: error },
    );
  }
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

function whatToCheck({ topology, tls }: RedisAddress): string {
  const checks = {
    single: 'that it runs',
    socket: 'that it runs',
    sentinel: 'that the Sentinels and the master they name run and can be reached from here',
    cluster: 'that the nodes run and can be reached from here at the addresses they announce',
  };
  const certificate = tls ? ', that NODE_EXTRA_CA_CERTS names the file of an own CA' : '';
  return `${checks[topology]}${certificate} and that REDIS_URL is right`;
}
