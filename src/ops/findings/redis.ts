import { formatBytes } from '../../core/bytes.ts';
import { formatDuration } from '../../core/durations.ts';
import { findMissingRights } from '../../store/missing-rights.ts';
import { refusalIn, refusalText } from '../../store/redis-refusal.ts';
import { type RedisReport, readRedisReport } from '../../store/redis-report.ts';
import type { Store } from '../../store/store.ts';
import { type Finding, ok, problem, unknown, warning } from './finding.ts';

const OLDEST_VERSION = [6, 2] as const;

/** Shares of Redis' memory limit. */
const HIGH_MEMORY = 0.8;
const FULL_MEMORY = 0.95;

/** Milliseconds. Pauses between attempts and timestamps are off by as much. */
const CLOCK_WARNING_MS = 1000;
const CLOCK_PROBLEM_MS = 30_000;

/** Milliseconds of a round trip. A trigger is answered 503 after ACCEPT_TIMEOUT_MS. */
const SLOW_MS = 50;
const TOO_SLOW_MS = 500;

/** Whether runs are safe in this Redis. */
export async function checkRedis(store: Store): Promise<Finding[]> {
  const writable = await checkWrites(store);
  const report = await readRedisReport(store.redis, store.keys);
  return [
    checkVersion(report),
    writable,
    checkAof(report),
    checkFsync(report),
    checkSaves(report),
    checkEviction(report),
    checkMemory(report),
    checkClock(report),
    checkLatency(report),
  ];
}

/** Whether this login has the rights that orc needs. */
export async function checkRights({ redis, keys }: Store): Promise<Finding> {
  const { login, missing } = await findMissingRights(redis, keys);
  if (missing.length === 0) return ok('redis rights', 'complete');
  const rights = missing.map((right) => right.replace(/^@/, '+@'));
  return problem(
    'redis rights',
    `the login ${login} lacks ${missing.join(', ')} (NOPERM)`,
    `redis-cli acl setuser ${login} ${rights.join(' ')}; docs/redis.md lists them all`,
  );
}

function checkVersion({ version }: RedisReport): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_VERSION;
  const isRecent = major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
  if (isRecent) return ok('redis version', version);
  return problem('redis version', `${version} is too old`, 'install Redis 6.2 or later, or Valkey');
}

async function checkWrites({ workers }: Store): Promise<Finding> {
  try {
    await workers.probe();
    return ok('redis writes', 'accepted');
  } catch (error) {
    const { message } = error as Error;
    const refusal = refusalIn(error) ?? { message: refusalText(message), cure: 'check the log of Redis' };
    return problem('redis writes', `refused: ${refusal.message}`, refusal.cure);
  }
}

function checkAof({ hasAof }: RedisReport): Finding {
  if (hasAof) return ok('aof', 'on');
  return problem(
    'aof',
    'off: accepted runs are lost when Redis stops',
    'redis-cli config set appendonly yes',
  );
}

function checkFsync({ hasAof, appendfsync }: RedisReport): Finding {
  const cure = 'redis-cli config set appendfsync always';
  if (appendfsync === undefined) {
    return unknown('appendfsync', 'this login may not read it', 'redis-cli config get appendfsync');
  }
  if (appendfsync === 'always' || !hasAof) return ok('appendfsync', appendfsync);
  if (appendfsync === 'everysec') {
    return warning('appendfsync', 'everysec: a power failure loses up to a second of accepted runs', cure);
  }
  return problem('appendfsync', `${appendfsync}: a power failure loses accepted runs`, cure);
}

function checkSaves({ failedSaves }: RedisReport): Finding {
  if (failedSaves.length === 0) return ok('redis saves', 'the latest succeeded');
  return problem(
    'redis saves',
    `the latest failed: ${failedSaves.join(', ')}`,
    'free disk space for Redis and check that Redis may write there, then: redis-cli bgsave',
  );
}

function checkEviction({ evictionPolicy }: RedisReport): Finding {
  if (evictionPolicy === 'noeviction') return ok('eviction', evictionPolicy);
  return problem(
    'eviction',
    `${evictionPolicy}: Redis may evict runs and automations`,
    'redis-cli config set maxmemory-policy noeviction',
  );
}

function checkMemory({ usedBytes, limitBytes, hasLimit }: RedisReport): Finding {
  if (limitBytes === 0) return ok('memory', `${formatBytes(usedBytes)} used`);
  const whole = hasLimit ? 'of maxmemory' : 'of the memory of its machine';
  const message = `${formatBytes(usedBytes)} used, ${Math.round((100 * usedBytes) / limitBytes)} % ${whole}`;
  const cure = hasLimit
    ? `redis-cli config set maxmemory ${Math.ceil((2 * Math.max(limitBytes, usedBytes)) / 1_048_576)}mb`
    : 'give Redis a machine with more memory, or lower RUN_RETENTION_DAYS';
  if (usedBytes >= FULL_MEMORY * limitBytes) return problem('memory', message, cure);
  if (usedBytes >= HIGH_MEMORY * limitBytes) return warning('memory', message, cure);
  return ok('memory', message);
}

function checkClock({ clockAheadMs }: RedisReport): Finding {
  const skewMs = Math.abs(clockAheadMs);
  const message = `Redis is ${formatDuration(skewMs)} ${clockAheadMs < 0 ? 'behind' : 'ahead of'} this machine`;
  const cure = 'timedatectl set-ntp true, on both machines';
  if (skewMs >= CLOCK_PROBLEM_MS) return problem('clock', message, cure);
  return skewMs >= CLOCK_WARNING_MS ? warning('clock', message, cure) : ok('clock', message);
}

function checkLatency({ roundTripMs }: RedisReport): Finding {
  const message = `a round trip takes ${roundTripMs.toFixed(1)} ms`;
  const cure = 'run the API and the workers near Redis, in the same network';
  if (roundTripMs >= TOO_SLOW_MS) return problem('latency', message, cure);
  return roundTripMs >= SLOW_MS ? warning('latency', message, cure) : ok('latency', message);
}
