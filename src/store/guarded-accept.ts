import type { IRedisTransaction } from 'bullmq';
import type { ConfirmedKey } from './automations.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { acceptedAtOf } from './run-id.ts';

/**
 * Goes in front of BullMQ's script that adds a job, as part of it: unless the key and the automation are what they are
 * expected to be, the script ends here, and Redis is as it was. A run that exists already was let in when this was first
 * executed: the connection was lost before the answer came, and ioredis has sent the script again. That is looked at
 * first, and writes nothing, so that a Redis that takes no writes any more does not deny it.
 *
 * The hash is compared without a care for time: Lua compares strings by their addresses, and only a key that Redis has
 * confirmed before comes this far.
 */
const GUARD = `
  do
    local automationKey, openRunsKey, latestRunsKey, jobKey = unpack(KEYS, #KEYS - 3)
    local id, keyHash, attempts, runId, slug, acceptedAt = unpack(ARGV, #ARGV - 5)
    if redis.call('EXISTS', jobKey) == 1 then return runId end
    local found = redis.call('HMGET', automationKey, 'id', 'enabled', 'keyHash', 'attempts', 'concurrency', 'rate')
    local isExpected = found[1] == id and found[2] == '1' and found[3] == keyHash and found[4] == attempts
      and not found[5] and not found[6]
    if not isExpected then return false end
    redis.call('ZADD', openRunsKey, 0, runId)
    redis.call('ZADD', latestRunsKey, 'GT', acceptedAt, slug)
  end
`;

/** What is used of ioredis' commands that are scripts, whose types keep them private. */
type Scripts = Record<string, { lua: string; numberOfKeys: number } | undefined>;
type Commands = Record<string, (args: unknown[]) => Promise<unknown>>;

/**
 * What BullMQ adds a run's job over, in place of a connection, so that the key is judged and the run enqueued in one
 * round trip. Redis that syncs its file for every write answers nobody before that is done, so that each round trip
 * takes a long time, however little it asks. An API process therefore guesses that a key which was right is still right.
 * What decides is what Redis holds when it enqueues the run: BullMQ's own script is executed with {@link GUARD} in front
 * of it, and a script is atomic. BullMQ computes the keys and arguments of its script, which ours follow.
 *
 * Where it is wrong, or BullMQ's script is not to be found, nothing is enqueued and the reply is null; the two steps of
 * which this is a shortcut then say why.
 */
export function guardedAccept(
  redis: RedisClient,
  keys: Keys,
  { automation: { id, slug, attempts }, keyHash }: ConfirmedKey,
  run: { id: string; jobKey: string },
): IRedisTransaction {
  const runCommand = async (name: string, args: (string | number | Buffer)[]) => {
    const script = (redis.scriptsSet as Scripts)[name];
    if (!script) return null;
    const { lua, numberOfKeys } = script;
    const guarded = `${name}:guarded`;
    if (!(guarded in redis)) {
      redis.defineCommand(guarded, { lua: GUARD + lua, numberOfKeys: numberOfKeys + 4 });
    }
    return (redis as unknown as Commands)[guarded]?.([
      ...args.slice(0, numberOfKeys),
      ...[keys.automation(slug), keys.openRuns(slug), keys.latestRuns, run.jobKey],
      ...args.slice(numberOfKeys),
      ...[id, keyHash, attempts, run.id, slug, acceptedAtOf(run.id).getTime()],
    ]);
  };
  return { runCommand } as unknown as IRedisTransaction;
}
