import type { IRedisTransaction, Job } from 'bullmq';
import type { Result } from 'ioredis';
import type { TerminalRunStatus } from '../core/run.ts';
import type { RedisClient } from './connect.ts';
import { PARKED_MS } from './lanes.ts';
import type { BullQueue } from './queue.ts';

type JobJson = ReturnType<Job['asJSON']>;
type Argument = string | number | Buffer;

/** BullMQ's Lua script that adds a job, with its keys and arguments. */
interface AddJobCall {
  lua: string;
  /** The same for every job of a queue. */
  keys: Argument[];
  /** Packed fields, the job's data, packed options. */
  args: Argument[];
}

/** The scripts that ioredis knows on a connection; it leaves their type open. */
type Scripts = Record<string, { lua: string; numberOfKeys: number } | undefined>;

/** The call that BullMQ would make to add this job. Sends nothing. */
export async function addJobCall(
  redis: RedisClient,
  queue: BullQueue,
  job: JobJson,
  id: string,
): Promise<AddJobCall> {
  const calls: [name: string, args: Argument[]][] = [];
  // Stands in for a transaction; BullMQ calls only this method.
  const recorder = { runCommand: (...call: [string, Argument[]]) => calls.push(call) };
  await queue.getBackend().addJobToTransaction(recorder as unknown as IRedisTransaction, job, id);
  const [[name, args] = ['nothing', []]] = calls;
  const script = (redis.scriptsSet as Scripts)[name];
  if (!script) throw new Error(`BullMQ adds a job by ${name}, which is not a script of this connection`);
  const { lua, numberOfKeys } = script;
  return { lua, keys: args.slice(0, numberOfKeys), args: args.slice(numberOfKeys) };
}

/** The script's last argument, as JSON. Times are in milliseconds. */
export interface AcceptScriptRequest {
  runId: string;
  slug: string;
  automationId: string;
  /** The text in the automation's hash; empty if there is none. */
  updatedAt: string;
  /** SHA-256 of the presented key; absent for operators, who need none. */
  keyHash?: string | undefined;
  /** In Redis' time; the script accepts nothing after it. */
  deadline: number;
  /** SHA-256 of the payload; present with an idempotency key. */
  payloadHash?: string | undefined;
  idempotencyWindowMs: number;
  rateLimit?: number | undefined;
  rateWindowMs?: number | undefined;
  concurrency?: number | undefined;
  maxQueuedRuns: number;
}

/** The script's own keys, in order, after those of BullMQ's two scripts. */
export const ACCEPT_KEYS = [
  'automation',
  'job',
  'wait',
  'delayed',
  'prioritized',
  'openRuns',
  'allOpenRuns',
  'idempotency',
  'rateWindow',
  'lanes',
  'lane',
  'laneRunning',
] as const;

/**
 * The script that accepts a run: it decides and enqueues in one step, all or nothing. It reads first. The first write is
 * BullMQ's, which Redis denies when it is out of memory, since what a script has written is not taken back.
 *
 * Its arguments are those of BullMQ's script, the options that a job has which waits in a lane, and an
 * {@link AcceptScriptRequest}. Its reply is the verdict's word, followed by what belongs to it.
 *
 * @param standard adds a job that a worker can take at once
 * @param delayed adds a job that waits
 */
function acceptLua(standard: AddJobCall, delayed: AddJobCall): string {
  const bullmqKeys = standard.keys.length + delayed.keys.length;
  const names = ACCEPT_KEYS.map((name) => `${name}Key`).join(', ');
  return `
local function addStandardJob(KEYS, ARGV)
${standard.lua}
end

local function addDelayedJob(KEYS, ARGV)
${delayed.lua}
end

local ${names} = unpack(KEYS, ${bullmqKeys + 1})
local job, data, options, laneOptions = unpack(ARGV)
local request = cjson.decode(ARGV[5])

-- The reply was lost with the connection, and ioredis sent the command again.
if redis.call('EXISTS', jobKey) == 1 then return {'accepted', request.runId} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > request.deadline then return {'expired', now} end

-- No constant-time comparison is needed: only a key that Redis has confirmed before gets here.
local id, enabled, updatedAt, keyHash, previousKeyHash, previousKeyEndsAt = unpack(redis.call('HMGET', automationKey,
  'id', 'enabled', 'updatedAt', 'keyHash', 'previousKeyHash', 'previousKeyEndsAt'))
local isKeyRight = not request.keyHash or request.keyHash == keyHash
  or (request.keyHash == previousKeyHash and now < tonumber(previousKeyEndsAt))
if id ~= request.automationId or enabled ~= '1' or (updatedAt or '') ~= request.updatedAt or not isKeyRight then
  return {'changed'}
end

if request.payloadHash then
  local known = redis.call('HMGET', idempotencyKey, 'runId', 'payloadHash', 'accepted', 'status')
  local runId, payloadHash, accepted, status = unpack(known)
  if runId and payloadHash ~= request.payloadHash then return {'reused'} end
  if runId and accepted then return {'known', runId, status} end
  -- A process of the version before was about to enqueue this run, and may still do so.
  if runId and runId ~= request.runId then return {'reserved', runId} end
end

local remaining, resetMs
if request.rateLimit then
  local used = tonumber(redis.call('GET', rateWindowKey) or '0')
  remaining, resetMs = request.rateLimit - used, redis.call('PTTL', rateWindowKey)
  if resetMs < 0 then resetMs = request.rateWindowMs end
  if remaining <= 0 then return {'limited', 0, resetMs} end
end

local waiting = redis.call('LLEN', waitKey) + redis.call('ZCARD', delayedKey) + redis.call('ZCARD', prioritizedKey)
if waiting >= request.maxQueuedRuns then return {'full'} end

local hasPlace = not request.concurrency
  or (redis.call('ZCARD', laneKey) == 0 and redis.call('SCARD', laneRunningKey) < request.concurrency)
if hasPlace then
  addStandardJob({unpack(KEYS, 1, ${standard.keys.length})}, {job, data, options})
else
  addDelayedJob({unpack(KEYS, ${standard.keys.length + 1}, ${bullmqKeys})}, {job, data, laneOptions})
end
if request.concurrency then
  redis.call('HSET', lanesKey, request.automationId, request.slug)
  if hasPlace then redis.call('SADD', laneRunningKey, request.runId) else redis.call('ZADD', laneKey, 0, request.runId) end
end
if request.rateLimit then
  remaining = remaining - 1
  if redis.call('INCR', rateWindowKey) == 1 then redis.call('PEXPIRE', rateWindowKey, request.rateWindowMs) end
end
if request.payloadHash then
  redis.call('HSET', idempotencyKey, 'runId', request.runId, 'payloadHash', request.payloadHash, 'accepted', 1)
  redis.call('PEXPIRE', idempotencyKey, request.idempotencyWindowMs)
end
redis.call('ZADD', openRunsKey, 0, request.runId)
redis.call('ZADD', allOpenRunsKey, 0, request.runId)
return {'accepted', request.runId, remaining, resetMs}
`;
}

/** The script's reply: the verdict and its values. */
export type AcceptReply =
  | [word: 'accepted', runId: string, remaining?: number | null, resetMs?: number | null]
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

/** Executes {@link acceptLua} for a job. */
export type AcceptScript = (
  job: JobJson,
  request: AcceptScriptRequest,
  ownKeys: Record<(typeof ACCEPT_KEYS)[number], string>,
) => Promise<AcceptReply>;

/** Defines the script for one queue, on one connection. @param template any job without a delay */
export async function defineAcceptScript(
  redis: RedisClient,
  queue: BullQueue,
  template: JobJson,
): Promise<AcceptScript> {
  const standard = await addJobCall(redis, queue, template, 'sample');
  const delayed = await addJobCall(redis, queue, parked(template), 'sample');
  const bullmqKeys = [...standard.keys, ...delayed.keys];
  const numberOfKeys = bullmqKeys.length + ACCEPT_KEYS.length;
  redis.defineCommand('orcAccept', { lua: acceptLua(standard, delayed), numberOfKeys });
  return async (job, request, ownKeys) => {
    const { args } = await addJobCall(redis, queue, job, request.runId);
    // Only a run with a lane can be parked.
    const parkedCall = request.concurrency && (await addJobCall(redis, queue, parked(job), request.runId));
    const [, , laneOptions = ''] = parkedCall ? parkedCall.args : [];
    const keys = [...bullmqKeys, ...ACCEPT_KEYS.map((name) => ownKeys[name])];
    return redis.orcAccept(...keys, ...args, laneOptions, JSON.stringify(request));
  };
}

/** The job as it is while it waits in a lane. */
function parked(job: JobJson): JobJson {
  return { ...job, opts: { ...job.opts, delay: PARKED_MS } };
}
