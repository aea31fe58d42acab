import { Cluster, Redis } from 'ioredis';
import { parseRedisUrl, type RedisAddress } from '../core/redis-url.ts';
import { type ConnectionProfile, clusterOptions, redisOptions } from './connection-options.ts';

export type { ConnectionProfile } from './connection-options.ts';

/** A connection to one Redis, directly or through Sentinels, or to a cluster. */
export type RedisClient = Redis | Cluster;

/**
 * Opens a connection in the background. Failures go to `onError`, repeatedly while Redis is down, and never throw here.
 *
 * @param url REDIS_URL, in any of the forms of `parseRedisUrl`
 * @throws RedisUrlError
 */
export function connect(
  url: string,
  profile: ConnectionProfile,
  onError: (error: Error) => void,
): RedisClient {
  const address = parseRedisUrl(url);
  if (address.topology === 'cluster') return connectToCluster(address, profile, onError);
  const redis = new Redis(redisOptions(address, profile));
  if (address.topology === 'sentinel') reportSentinels(redis, address.master, onError);
  else redis.on('error', onError);
  return redis;
}

function connectToCluster(
  address: Extract<RedisAddress, { topology: 'cluster' }>,
  profile: ConnectionProfile,
  onError: (error: Error) => void,
): Cluster {
  const cluster = new Cluster(address.nodes, clusterOptions(address, profile));
  // Otherwise a node is connected to when there is something to send, and while some are connected and some are not,
  // ioredis can tear a transaction apart: it chooses a node for each command as long as there is no master.
  const open = (node: Redis) => void node.connect().catch(() => undefined);
  cluster.on('ready', () => cluster.nodes().forEach(open));
  cluster.on('+node', (node: Redis) => {
    // Before it is ready, the cluster connects to them itself, and would not learn why that fails.
    if (cluster.status === 'ready') open(node);
  });
  cluster.on('error', (error: Error & { lastNodeError?: Error }) => {
    const { lastNodeError } = error;
    onError(
      lastNodeError
        ? new Error(`no node of the cluster can be used (${lastNodeError.message})`, { cause: error })
        : error,
    );
  });
  return cluster;
}

/** ioredis reports Sentinels that refuse to answer, or do not know the master, as unreachable. */
function reportSentinels(redis: Redis, master: string, onError: (error: Error) => void): void {
  let latest = '';
  redis.on('sentinelError', ({ message }: Error) => {
    latest = message.replace(/^.* because /, '').replace(/\.$/, '');
  });
  redis.on('error', (error: Error) => {
    if (!error.message.startsWith('All sentinels are unreachable')) return onError(error);
    const reason = latest.includes('No such master')
      ? `no Sentinel knows a master named ${master}`
      : `no Sentinel can be used (${latest})`;
    onError(new Error(reason, { cause: error }));
  });
}

/** Waits up to `ms` milliseconds for a connection. Never rejects. */
export async function untilReady(redis: RedisClient, ms: number): Promise<void> {
  if (redis.status === 'ready') return;
  const timeout = AbortSignal.timeout(ms);
  await new Promise<void>((resolve) => {
    redis.once('ready', resolve);
    timeout.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** An outage ends with a connection that lasts this long, in milliseconds. */
const STEADY_MS = 500;

/** Reports an outage once at its start and once at its end, not at every attempt to reconnect. */
export function outageReporter(report: { down(error: Error): void; up(): void }): {
  onError(error: Error): void;
  watch(redis: RedisClient): void;
} {
  let isDown = false;
  let recovery: NodeJS.Timeout | undefined;
  return {
    onError(error) {
      clearTimeout(recovery);
      if (isDown) return;
      isDown = true;
      report.down(error);
    },
    watch(redis) {
      redis.on('ready', () => {
        clearTimeout(recovery);
        if (!isDown) return;
        recovery = setTimeout(() => {
          report.up();
          isDown = false;
        }, STEADY_MS).unref();
      });
      redis.on('close', () => clearTimeout(recovery));
    },
  };
}

/** A Redis URL without its passwords, for messages. */
export function withoutPassword(url: string): string {
  return url.replace(/(password=)[^&#]*/gi, '$1***').replace(/^([a-z+]+:\/\/)[^/?#]*@/, '$1***@');
}
