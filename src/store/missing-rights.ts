import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** One command that needs the right; none changes a key. */
type Probe = (redis: RedisClient, key: string) => Promise<unknown>;

/** The rights that orc needs, by Redis' names (`ACL CAT`). */
const PROBES: Record<string, Probe> = {
  '@read': (redis, key) => redis.exists(key),
  '@write': (redis, key) => redis.del(key),
  '@hash': (redis, key) => redis.hget(key, 'none'),
  '@sortedset': (redis, key) => redis.zcard(key),
  '@list': (redis, key) => redis.llen(key),
  '@set': (redis, key) => redis.scard(key),
  '@string': (redis, key) => redis.get(key),
  '@stream': (redis, key) => redis.xlen(key),
  '@blocking': (redis, key) => redis.bzpopmin(key, 0.01),
  '@transaction': (redis, key) => redis.multi().exists(key).exec(),
  '@scripting': (redis, key) => redis.eval('return 1', 1, key),
  '+info': (redis, key) => redis.eval(`return redis.call('INFO')`, 1, key),
};

/** How Redis refuses a command: outside a script, in a script, and in a script of Redis 6. */
const REFUSAL = /NOPERM|can't run this command|ACL failure in script/;

/** The login's name, and the rights that it lacks, such as `@scripting`. */
export async function findMissingRights(
  redis: RedisClient,
  keys: Keys,
): Promise<{ login: string; missing: string[] }> {
  const key = `${keys.writeProbe}:none`;
  const missing: string[] = [];
  for (const [right, probe] of Object.entries(PROBES)) {
    // Other checks report any other error.
    await probe(redis, key).catch(({ message }: Error) => REFUSAL.test(message) && missing.push(right));
  }
  const login = missing.length === 0 ? '' : await redis.call('ACL', 'WHOAMI').catch(() => '<login>');
  // Without the right to run scripts, the rights inside them are unknown.
  const isKnown = (right: string) => right !== '+info' || !missing.includes('@scripting');
  return { login: String(login), missing: missing.filter(isKnown) };
}
