import { type ClusterOptions, type RedisOptions, SentinelConnector } from 'ioredis';
import type { RedisAddress } from '../core/redis-url.ts';

/**
 * How a connection behaves while Redis is away.
 *
 * - `fail-fast` (api): a command fails at once; reconnects for ever in the background.
 * - `patient` (worker): a command waits until Redis is back.
 * - `one-shot` (command line): one attempt to connect, then every command fails.
 */
export type ConnectionProfile = 'fail-fast' | 'patient' | 'one-shot';

type Cluster = Extract<RedisAddress, { topology: 'cluster' }>;
type Options = Omit<RedisOptions, 'replyMapping'>;

const RECONNECT_MAX_MS = 500;
const CONNECT_TIMEOUT_MS = 2000;

/** How long a Sentinel may take to answer, in milliseconds. */
const SENTINEL_ANSWER_MS = 1000;

/** Longest pause before reconnecting to a Sentinel, in milliseconds. */
const SENTINEL_RECONNECT_MS = 5000;

/**
 * How often the cluster's slots are refreshed, in milliseconds. Nothing else ends a wait for a silent master that was
 * replaced.
 */
const SLOTS_REFRESH_MS = 2000;

/**
 * A patient connection repeats a command every 100 ms for an hour while its part of the cluster has no master: BullMQ fails a
 * run whose end it cannot record.
 */
const PATIENT_REDIRECTIONS = 36_000;

/** How long commands are repeated because the server is a replica, in milliseconds. */
const PROMOTION_MS = 10_000;

const reconnectDelay = (times: number) => Math.min(times * 50, RECONNECT_MAX_MS);
const never = () => null;

const PROFILES = {
  'fail-fast': { enableOfflineQueue: false, maxRetriesPerRequest: 1 },
  patient: { enableOfflineQueue: true, maxRetriesPerRequest: null },
  'one-shot': { enableOfflineQueue: true, maxRetriesPerRequest: 0 },
} as const satisfies Record<ConnectionProfile, Options>;

/** The options of a connection to one Redis, directly or through Sentinels. */
export function redisOptions(address: Exclude<RedisAddress, Cluster>, profile: ConnectionProfile): Options {
  const retryStrategy = profile === 'one-shot' ? never : reconnectDelay;
  const common: Options = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    ...PROFILES[profile],
    retryStrategy,
    sentinelRetryStrategy: retryStrategy,
    ...login(address),
    db: address.db,
    ...(profile !== 'one-shot' && { reconnectOnError: leaveReplica(profile) }),
  };
  if (address.topology === 'socket') return { ...common, path: address.path };
  if (address.topology === 'single') return { ...common, host: address.host, port: address.port };
  const { sentinels, master, sentinelUsername, sentinelPassword } = address;
  return {
    ...common,
    sentinels,
    name: master,
    sentinelCommandTimeout: SENTINEL_ANSWER_MS,
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(sentinelPassword !== undefined && { sentinelPassword }),
    ...(address.tls && { enableTLSForSentinelMode: true, sentinelTLS: {} }),
    ...(profile !== 'one-shot' && {
      // Nothing else ends a wait for a master that went silent and was replaced.
      failoverDetector: true,
      sentinelReconnectStrategy: () => SENTINEL_RECONNECT_MS,
      // It is ioredis' connector, of which its type here tells only the overridden method.
      Connector: QuietSentinelConnector as unknown as NonNullable<RedisOptions['Connector']>,
    }),
  };
}

export function clusterOptions(address: Cluster, profile: ConnectionProfile) {
  const { enableOfflineQueue, maxRetriesPerRequest } = PROFILES[profile];
  const isOneShot = profile === 'one-shot';
  return {
    enableOfflineQueue,
    clusterRetryStrategy: isOneShot ? never : reconnectDelay,
    ...(!isOneShot && { slotsRefreshInterval: SLOTS_REFRESH_MS }),
    ...(profile === 'patient' && { maxRedirections: PATIENT_REDIRECTIONS }),
    // Certificates are made for names: ioredis would resolve them first, and check the certificate for the address.
    dnsLookup: (hostname, callback) => callback(null, hostname),
    redisOptions: { connectTimeout: CONNECT_TIMEOUT_MS, maxRetriesPerRequest, ...login(address) },
  } satisfies ClusterOptions;
}

function login({ tls, username, password }: RedisAddress): Options {
  return {
    ...(tls && { tls: {} }),
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
  };
}

/**
 * Reconnects when the server has become a replica in a failover. A patient connection repeats its command for a while: the
 * result of a run must not get lost. It sends no transactions, which repeated commands would split.
 */
function leaveReplica(profile: ConnectionProfile): (error: Error) => false | 1 | 2 {
  let firstAt = 0;
  let latestAt = 0;
  return ({ message }) => {
    // In a script, Redis 6 puts other words before the code.
    if (!message.includes('READONLY ')) return false;
    const now = Date.now();
    if (now - latestAt > PROMOTION_MS) firstAt = now;
    latestAt = now;
    return profile === 'patient' && now - firstAt < PROMOTION_MS ? 2 : 1;
  };
}

/** The one method of a connector that is overridden. */
interface SentinelConnections {
  connectToSentinel(...args: unknown[]): { on(event: 'error', listener: () => void): void };
}

/** ioredis' types have that method as private, so that no subclass could override it. */
const SentinelConnectorBase = SentinelConnector as unknown as new (options: unknown) => SentinelConnections;

/** ioredis prints every error of its connections to Sentinels; this connector does not. */
class QuietSentinelConnector extends SentinelConnectorBase {
  override connectToSentinel(...args: unknown[]) {
    const connection = super.connectToSentinel(...args);
    connection.on('error', () => undefined);
    return connection;
  }
}
