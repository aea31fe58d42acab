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
 * A cluster is asked this often who holds what, in milliseconds. Nothing else ends a wait for a master that went silent
 * and was replaced.
 */
const SLOTS_REFRESH_MS = 2000;

/**
 * A command is sent again every 100 ms while its part of the cluster has no master: by a patient connection for an hour,
 * since BullMQ takes a run whose end cannot be noted for one that failed.
 */
const PATIENT_REDIRECTIONS = 36_000;

/** For so long may commands be sent again because a server turned out to be a replica, in milliseconds. */
const PROMOTION_MS = 10_000;

const reconnectDelay = (times: number) => Math.min(times * 50, RECONNECT_MAX_MS);
const never = () => null;

const PROFILES: Record<ConnectionProfile, Options> = {
  'fail-fast': {
    enableOfflineQueue: false,
    maxRetriesPerRequest: 1,
    retryStrategy: reconnectDelay,
    sentinelRetryStrategy: reconnectDelay,
  },
  patient: {
    maxRetriesPerRequest: null,
    retryStrategy: reconnectDelay,
    sentinelRetryStrategy: reconnectDelay,
  },
  'one-shot': { maxRetriesPerRequest: 0, retryStrategy: never, sentinelRetryStrategy: never },
};

/** The options of a connection to one Redis, directly or through Sentinels. */
export function redisOptions(address: Exclude<RedisAddress, Cluster>, profile: ConnectionProfile): Options {
  const common: Options = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    ...PROFILES[profile],
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
      Connector: QuietSentinelConnector as unknown as NonNullable<RedisOptions['Connector']>,
    }),
  };
}

export function clusterOptions(address: Cluster, profile: ConnectionProfile) {
  const { enableOfflineQueue = true, maxRetriesPerRequest = null } = PROFILES[profile];
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
 * Connects anew when the server turns out to be a replica, which it becomes in a failover. A patient connection sends
 * its command again, for a while: what a worker says about a run that has ended must not get lost. It sends no
 * transactions, which would come apart by that.
 */
function leaveReplica(profile: ConnectionProfile): (error: Error) => false | 1 | 2 {
  let firstAt = 0;
  let latestAt = 0;
  return ({ message }) => {
    // Redis 6 puts other words before the code when a script met it.
    if (!message.includes('READONLY ')) return false;
    const now = Date.now();
    if (now - latestAt > PROMOTION_MS) firstAt = now;
    latestAt = now;
    return profile === 'patient' && now - firstAt < PROMOTION_MS ? 2 : 1;
  };
}

/** The used part of a class whose types are not exported. */
interface SentinelConnections {
  connectToSentinel(...args: unknown[]): { on(event: 'error', listener: () => void): void };
}

const SentinelConnectorBase = SentinelConnector as unknown as new (options: unknown) => SentinelConnections;

/** ioredis prints every error of its connections to Sentinels; this connector does not. */
class QuietSentinelConnector extends SentinelConnectorBase {
  override connectToSentinel(...args: unknown[]) {
    const connection = super.connectToSentinel(...args);
    connection.on('error', () => undefined);
    return connection;
  }
}
