import { Redis, type RedisOptions } from 'ioredis';

export type { Redis } from 'ioredis';

/**
 * How a connection behaves while Redis is away.
 *
 * - `fail-fast` (api): a command fails at once; reconnects for ever in the background.
 * - `patient` (worker): a command waits until Redis is back.
 * - `one-shot` (command line): one attempt to connect, then every command fails.
 */
export type ConnectionProfile = 'fail-fast' | 'patient' | 'one-shot';

const RECONNECT_MAX_MS = 500;
const CONNECT_TIMEOUT_MS = 2000;

const reconnectDelay = (times: number) => Math.min(times * 50, RECONNECT_MAX_MS);

const PROFILES: Record<ConnectionProfile, Omit<RedisOptions, 'replyMapping'>> = {
  'fail-fast': { enableOfflineQueue: false, maxRetriesPerRequest: 1, retryStrategy: reconnectDelay },
  patient: { maxRetriesPerRequest: null, retryStrategy: reconnectDelay },
  'one-shot': { maxRetriesPerRequest: 0, retryStrategy: () => null },
};

/**
 * Opens a connection. It is established in the background: failures reach `onError`, the latest one again and again
 * while Redis is away, and never throw here.
 *
 * @param url `redis://`, `rediss://` or the absolute path of a Unix socket
 */
export function connect(url: string, profile: ConnectionProfile, onError: (error: Error) => void): Redis {
  const redis = new Redis(url, { connectTimeout: CONNECT_TIMEOUT_MS, ...PROFILES[profile] });
  redis.on('error', onError);
  return redis;
}

/** Waits for a connection to be established, but not for longer than `ms` milliseconds. Never rejects. */
export async function settle(redis: Redis, ms: number): Promise<void> {
  if (redis.status === 'ready') return;
  const timeout = AbortSignal.timeout(ms);
  await new Promise<void>((resolve) => {
    redis.once('ready', resolve);
    timeout.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Reports an outage once when it begins and once when it ends, instead of at every attempt to reconnect. */
export function outageReporter(report: { down(error: Error): void; up(): void }): {
  onError(error: Error): void;
  watch(redis: Redis): void;
} {
  let isDown = false;
  return {
    onError(error) {
      if (isDown) return;
      isDown = true;
      report.down(error);
    },
    watch(redis) {
      redis.on('ready', () => {
        if (isDown) report.up();
        isDown = false;
      });
    },
  };
}

/** A Redis URL without its password, for messages. */
export function withoutPassword(url: string): string {
  return url.replace(/^(rediss?:\/\/)[^/?#]*@/, '$1***@').replace(/(password=)[^&#]*/gi, '$1***');
}
