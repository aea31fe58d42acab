import { type IRedisTransaction, Job } from 'bullmq';
import type { Result } from 'ioredis';
import type { TerminalRunStatus } from '../core/run.ts';
import type { RedisClient } from './connect.ts';
import { END_UNHELD } from './end-unheld.ts';
import { IDEMPOTENCY_WINDOW_MS } from './idempotency.ts';
import type { Keys } from './keys.ts';
import { PARKED_MS } from './lanes.ts';
import type { BullQueue } from './queue.ts';

type Argument = string | number;

/** BullMQ's Lua script that adds a job, and its keys, which are the same for every job of a queue. */
interface AddJobScript {
  lua: string;
  keys: string[];
}

/** The scripts that ioredis knows on a connection; it leaves their type open. */
type Scripts = Record<string, { lua: string; numberOfKeys: number } | undefined>;

/** The script by which BullMQ adds jobs. Sends nothing. @param delay of the jobs, in milliseconds */
export async function addJobScript(
  redis: RedisClient,
  queue: BullQueue,
  delay: number,
): Promise<AddJobScript> {
  const calls: [name: string, keysAndArguments: string[]][] = [];
  // Stands in for a transaction; BullMQ calls only this method.
  const recorder = { runCommand: (...call: [string, string[]]) => calls.push(call) };
  const job = new Job(queue, 'sample', {}, { delay }).asJSON();
  await queue.getBackend().addJobToTransaction(recorder as unknown as IRedisTransaction, job, 'sample');
  const [[name, keysAndArguments] = ['nothing', []]] = calls;
  const script = (redis.scriptsSet as Scripts)[name];
  if (!script) throw new Error(`BullMQ adds a job by ${name}, which is not a script of this connection`);
  return { lua: script.lua, keys: keysAndArguments.slice(0, script.numberOfKeys) };
}

/** The script's arguments, in order. Times are in milliseconds; what does not apply is empty. */
const REQUEST = [
  /** Of the job, both JSON. */
  'data',
  'options',
  'timestamp',
  'runId',
  'slug',
  'automationId',
  /** The text in the automation's hash; empty if there is none. */
  'updatedAt',
  /** SHA-256 of the presented key; absent for operators, who need none. */
  'keyHash',
  /** In Redis' time; the script accepts nothing after it. */
  'deadline',
  'maxQueuedRuns',
  'concurrency',
  /** The RunOutcome of a run that finds no place in its lane; absent for runs that wait there. */
  'skippedOutcome',
  'rateLimit',
  'rateWindowMs',
  /** SHA-256 of the idempotency key, and of the payload. */
  'idempotency',
  'payloadHash',
] as const;

export type AcceptScriptRequest = Partial<Record<(typeof REQUEST)[number], Argument | undefined>>;

/**
 * The script that accepts a run: it decides and enqueues in one step, all or nothing. It reads first. The first write is
 * BullMQ's, which Redis denies when it is out of memory, since what a script has written is not taken back.
 *
 * Its only key is the automation's. The script makes the names of the others, as BullMQ's scripts do: all are in one slot.
 * Its arguments are {@link REQUEST}; its reply is the verdict's word, followed by what belongs to it.
 *
 * @param standard adds a job that a worker can take at once
 * @param delayed adds a job that waits
 */
function acceptLua(standard: AddJobScript, delayed: AddJobScript, keys: Keys, queue: BullQueue): string {
  /** Stands for a variable of the script within a key. */
  const lua = (variable: string) => `' .. ${variable} .. '`;
  const list = (items: string[]) => `{${items.map((item) => `'${item}'`)}}`;
  return `
-- BullMQ's scripts take packed arguments; here they are given what would be unpacked.
local cmsgpack = {unpack = function(value) return value end}

local function addStandardJob(KEYS, ARGV)
${standard.lua}
end

local function addDelayedJob(KEYS, ARGV)
${delayed.lua}
end

${END_UNHELD}

local automationKey = KEYS[1]
local ${REQUEST.join(', ')} = unpack(ARGV)

-- The reply was lost with the connection, and ioredis sent the command again.
if redis.call('EXISTS', '${queue.toKey(lua('runId'))}') == 1 then return {'accepted'} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(deadline) then return {'expired', now} end

-- No constant-time comparison is needed: only a key that Redis has confirmed before gets here.
local stored = redis.call('HMGET', automationKey,
  'id', 'enabled', 'updatedAt', 'keyHash', 'previousKeyHash', 'previousKeyEndsAt')
local isKeyRight = keyHash == '' or keyHash == stored[4] or (keyHash == stored[5] and now < tonumber(stored[6]))
if stored[1] ~= automationId or stored[2] ~= '1' or (stored[3] or '') ~= updatedAt or not isKeyRight then
  return {'changed'}
end

local idempotencyKey = '${keys.idempotency(lua('automationId'), lua('idempotency'))}'
if idempotency ~= '' then
  local known = redis.call('HMGET', idempotencyKey, 'runId', 'payloadHash', 'accepted', 'status')
  local knownId, knownHash, accepted, status = unpack(known)
  if knownId and knownHash ~= payloadHash then return {'reused'} end
  if knownId and accepted then return {'known', knownId, status} end
  -- A process of the version before was about to enqueue this run, and may still do so.
  if knownId and knownId ~= runId then return {'reserved', knownId} end
end

local rateWindowKey = '${keys.rateWindow(lua('automationId'))}'
local remaining, resetMs
if rateLimit ~= '' then
  local used = tonumber(redis.call('GET', rateWindowKey) or '0')
  remaining, resetMs = tonumber(rateLimit) - used, redis.call('PTTL', rateWindowKey)
  if resetMs < 0 then resetMs = tonumber(rateWindowMs) end
  if remaining <= 0 then return {'limited', 0, resetMs} end
end

-- No run has a priority, which would be in a set of its own.
local waiting = redis.call('LLEN', '${queue.toKey('wait')}') + redis.call('ZCARD', '${queue.toKey('delayed')}')
if waiting >= tonumber(maxQueuedRuns) then return {'full'} end

local laneKey, laneRunningKey = '${keys.lane(lua('automationId'))}', '${keys.laneRunning(lua('automationId'))}'
local hasPlace = concurrency == ''
  or (redis.call('ZCARD', laneKey) == 0 and redis.call('SCARD', laneRunningKey) < tonumber(concurrency))
if not hasPlace and skippedOutcome ~= '' and redis.call('ZCARD', laneKey) == 0 then
  -- A run gives its place back a moment after its end: nothing is skipped for a run that has ended.
  for _, id in ipairs(redis.call('SMEMBERS', laneRunningKey)) do
    local acceptedAt, endedAt = unpack(redis.call('HMGET', '${queue.toKey(lua('id'))}', 'timestamp', 'finishedOn'))
    if not acceptedAt or endedAt then redis.call('SREM', laneRunningKey, id) end
  end
  hasPlace = redis.call('SCARD', laneRunningKey) < tonumber(concurrency)
end
local isSkipped = not hasPlace and skippedOutcome ~= ''
local job, jobOptions = {'${queue.toKey('')}', runId, slug, timestamp}, cjson.decode(options)
if hasPlace then
  addStandardJob(${list(standard.keys)}, {job, data, jobOptions})
else
  jobOptions.delay = ${PARKED_MS}
  addDelayedJob(${list(delayed.keys)}, {job, data, jobOptions})
end
if concurrency ~= '' and not isSkipped then
  redis.call('HSET', '${keys.lanes}', automationId, slug)
  if hasPlace then redis.call('SADD', laneRunningKey, runId) else redis.call('ZADD', laneKey, 0, runId) end
end
if rateLimit ~= '' then
  remaining = remaining - 1
  if redis.call('INCR', rateWindowKey) == 1 then redis.call('PEXPIRE', rateWindowKey, rateWindowMs) end
end
if idempotency ~= '' then
  redis.call('HSET', idempotencyKey, 'runId', runId, 'payloadHash', payloadHash, 'accepted', 1)
  redis.call('PEXPIRE', idempotencyKey, ${IDEMPOTENCY_WINDOW_MS})
end
if isSkipped then
  redis.call('ZREM', '${queue.toKey('delayed')}', runId)
  -- Clocks differ: no run ends before it was accepted.
  local jobKey = '${queue.toKey(lua('runId'))}'
  local endedAt = string.format('%.0f', math.max(now, tonumber(timestamp)))
  endUnheld(jobKey, '${queue.toKey('failed')}', runId, endedAt, skippedOutcome)
  if idempotency ~= '' then redis.call('HSET', idempotencyKey, 'status', 'cancelled') end
end
-- A skipped run is listed as open, too, until it is given its event as every run is that ends.
redis.call('ZADD', '${keys.openRuns(lua('slug'))}', 0, runId)
redis.call('ZADD', '${keys.openRuns()}', 0, runId)
return {'accepted', isSkipped and 1 or 0, remaining, resetMs}
`;
}

export type AcceptedReply = [
  word: 'accepted',
  /** Absent when the run had been accepted before. */
  isSkipped?: 0 | 1,
  remaining?: number,
  resetMs?: number,
];

/** The script's reply: the verdict and its values. */
export type AcceptReply =
  | AcceptedReply
  | [word: 'known', runId: string, ended: TerminalRunStatus | null]
  | [word: 'reserved', runId: string]
  | [word: 'limited', remaining: number, resetMs: number]
  | [word: 'expired', redisMs: number]
  | [word: 'changed' | 'reused' | 'full'];

declare module 'ioredis' {
  interface RedisCommander<Context> {
    /** {@link acceptLua}, sent by its hash, or in full to a Redis that does not know it. */
    orcAccept(...keysAndArguments: Argument[]): Result<AcceptReply, Context>;
  }
}

/** Executes {@link acceptLua}. @param automationKey the key of the run's automation */
export type AcceptScript = (automationKey: string, request: AcceptScriptRequest) => Promise<AcceptReply>;

/** Defines the script for one queue, on one connection. */
export async function defineAcceptScript(
  redis: RedisClient,
  keys: Keys,
  queue: BullQueue,
): Promise<AcceptScript> {
  const standard = await addJobScript(redis, queue, 0);
  const delayed = await addJobScript(redis, queue, PARKED_MS);
  redis.defineCommand('orcAccept', { lua: acceptLua(standard, delayed, keys, queue), numberOfKeys: 1 });
  return (automationKey, request) =>
    redis.orcAccept(automationKey, ...REQUEST.map((name) => request[name] ?? ''));
}
