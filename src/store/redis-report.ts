import { Cluster, type Redis } from 'ioredis';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** Number of measured round trips. */
const SAMPLES = 9;

/** Settings and state of the Redis that holds orc's keys. */
export interface RedisReport {
  /** For Valkey, the Redis version that it is compatible with. */
  version: string;
  /** Whether every write goes to the append-only file. */
  hasAof: boolean;
  /** `always`, `everysec` or `no`; absent when this login may not read it. */
  appendfsync?: string;
  /** The fields of INFO that report a failed write to the disk. */
  failedSaves: string[];
  evictionPolicy: string;
  usedBytes: number;
  /** `maxmemory`, or the memory of Redis' machine where there is no limit; 0 when unknown. */
  limitBytes: number;
  hasLimit: boolean;
  /** By how much Redis' clock is ahead of this machine's, in milliseconds. */
  clockAheadMs: number;
  /** Median time from a command to its reply, in milliseconds. */
  roundTripMs: number;
}

/** Reads it with the rights that docs/redis.md lists. */
export async function readRedisReport(redis: RedisClient, keys: Keys): Promise<RedisReport> {
  // Within a script, INFO is that of the node which holds the key: any other node of a cluster may answer it otherwise.
  const info = fieldsOf(String(await redis.eval(`return redis.call('INFO')`, 1, keys.automations)));
  const number = (field: string) => Number(info.get(field) ?? 0);
  const appendfsync = await readSetting(redis, info.get('run_id'), 'appendfsync');
  return {
    version: info.get('redis_version') ?? '',
    hasAof: info.get('aof_enabled') === '1',
    ...(appendfsync !== undefined && { appendfsync }),
    failedSaves: ['aof_last_write_status', 'aof_last_bgrewrite_status', 'rdb_last_bgsave_status'].filter(
      (field) => info.get(field) === 'err',
    ),
    evictionPolicy: info.get('maxmemory_policy') ?? '',
    usedBytes: number('used_memory'),
    limitBytes: number('maxmemory') || number('total_system_memory'),
    hasLimit: number('maxmemory') > 0,
    ...(await measureTime(redis, keys)),
  };
}

/** Redis' `maxmemory` in bytes; 0 when it has no limit. */
export async function readMaxMemory(redis: RedisClient, keys: Keys): Promise<number> {
  const info = fieldsOf(String(await redis.eval(`return redis.call('INFO', 'memory')`, 1, keys.automations)));
  return Number(info.get('maxmemory') ?? 0);
}

function fieldsOf(info: string): Map<string, string> {
  return new Map(Array.from(info.matchAll(/^(\w+):(.*)$/gm), ([, field = '', value = '']) => [field, value]));
}

async function readSetting(
  redis: RedisClient,
  runId: string | undefined,
  name: string,
): Promise<string | undefined> {
  try {
    const server = redis instanceof Cluster ? await nodeWith(redis, runId) : redis;
    const reply = (await server?.config('GET', name)) as string[] | Record<string, string> | undefined;
    return Array.isArray(reply) ? reply[1] : reply?.[name];
  } catch {
    // Managed services have no CONFIG, and a careful operator does not let orc use it.
    return undefined;
  }
}

async function nodeWith(cluster: Cluster, runId: string | undefined): Promise<Redis | undefined> {
  for (const node of cluster.nodes('master')) {
    if (fieldsOf(await node.info('server')).get('run_id') === runId) return node;
  }
  return undefined;
}

async function measureTime(redis: RedisClient, keys: Keys) {
  const samples: { roundTripMs: number; clockAheadMs: number }[] = [];
  for (let count = 0; count < SAMPLES; count += 1) {
    const sentAt = Date.now();
    const start = performance.now();
    const reply = await redis.eval(`return redis.call('TIME')`, 1, keys.automations);
    const roundTripMs = performance.now() - start;
    const [seconds, microseconds] = (reply as string[]).map(Number);
    const redisTime = (seconds ?? 0) * 1000 + (microseconds ?? 0) / 1000;
    samples.push({ roundTripMs, clockAheadMs: redisTime - (sentAt + roundTripMs / 2) });
  }
  samples.sort((a, b) => a.roundTripMs - b.roundTripMs);
  return {
    // The fastest reply says most exactly when it was made.
    clockAheadMs: samples[0]?.clockAheadMs ?? 0,
    roundTripMs: samples[Math.floor(SAMPLES / 2)]?.roundTripMs ?? 0,
  };
}
