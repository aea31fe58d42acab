import { strict as assert } from 'node:assert/strict';
import type { RedisClient } from '../../src/store/connect.ts';
import { newRunId } from '../../src/store/run-id.ts';
import type { Store } from '../../src/store/store.ts';

/** Memory is allocated in steps, and not in the same ones for a copy. */
const TOLERANCE = 0.1;

/** Runs are copied in batches of this size. */
const BATCH = 1000;

/**
 * Copies a run once for each of the ids: each key that names it, with the id in its values replaced, and its membership
 * in each sorted set. Scores that are not all the same go up from copy to copy, as they do from run to run.
 */
const COPY = `
  local original, keyCount = ARGV[1], tonumber(ARGV[2])
  local function renamed(text, id)
    local from, to = string.find(text, original, 1, true)
    if not from then return nil end
    return string.sub(text, 1, from - 1) .. id .. string.sub(text, to + 1)
  end
  local naming = {}
  for index = 1, keyCount do
    naming[index] = {}
    if redis.call('TYPE', KEYS[index]).ok == 'hash' then
      local fields = redis.call('HGETALL', KEYS[index])
      for at = 1, #fields, 2 do
        if renamed(fields[at + 1], '') then naming[index][fields[at]] = fields[at + 1] end
      end
    end
  end
  local scores = {}
  for index = keyCount + 1, #KEYS do scores[index] = tonumber(redis.call('ZSCORE', KEYS[index], original)) end
  local offset = tonumber(ARGV[3])
  for at = 4, #ARGV do
    local id = ARGV[at]
    for index = 1, keyCount do
      local key = renamed(KEYS[index], id)
      redis.call('COPY', KEYS[index], key)
      for field, value in pairs(naming[index]) do redis.call('HSET', key, field, renamed(value, id)) end
    end
    for index, score in pairs(scores) do
      if score ~= 0 then score = score + offset + at end
      redis.call('ZADD', KEYS[index], string.format('%.17g', score), id)
    end
  end`;

/**
 * Fills Redis with copies of a run that orc itself has accepted, and executed where it has ended, so that there is of
 * each copy what there is of a real one. It must not be in any list or set.
 */
export async function copyRun(
  { redis, runs }: Pick<Store, 'redis' | 'runs'>,
  original: string,
  count: number,
): Promise<void> {
  const keys = await allKeys(redis);
  const named = keys.filter((key) => key.includes(original));
  const sets: string[] = [];
  for (const key of keys.filter((each) => !each.includes(':run_'))) {
    if ((await redis.type(key)) !== 'zset') continue;
    if ((await redis.zscore(key, original)) !== null) sets.push(key);
  }
  let latest = original;
  for (let copied = 0; copied < count; copied += BATCH) {
    const ids = Array.from({ length: Math.min(BATCH, count - copied) }, newRunId);
    const values = [original, named.length, copied, ...ids];
    await redis.eval(COPY, named.length + sets.length, ...named, ...sets, ...values);
    latest = ids.at(-1) ?? latest;
  }
  assert.deepEqual({ ...(await runs.get(latest)), id: original }, await runs.get(original));
  for (const key of named) {
    const copy = key.replace(original, latest);
    const share = (await memoryOf(redis, copy)) / (await memoryOf(redis, key));
    assert(Math.abs(share - 1) < TOLERANCE, `${copy} takes ${share} times the memory of ${key}`);
  }
}

/** Bytes, of all elements of the key: of some of them it would be an estimate. */
async function memoryOf(redis: RedisClient, key: string): Promise<number> {
  return Number(await redis.memory('USAGE', key, 'SAMPLES', 0));
}

async function allKeys(redis: RedisClient): Promise<string[]> {
  const found: string[] = [];
  let cursor = '0';
  do {
    const [next, page] = await redis.scan(cursor, 'COUNT', 10_000);
    cursor = next;
    found.push(...page);
  } while (cursor !== '0');
  return found;
}
