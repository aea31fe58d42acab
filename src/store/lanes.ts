import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { jobKeyOf, type QueueOpener } from './queue.ts';
import { TOUCH } from './touch.ts';

/** A run in a lane is a BullMQ job delayed by this long, in milliseconds: five years. */
export const PARKED_MS = 5 * 365 * 86_400_000;

/**
 * Places of a lane without a limit, because its automation was resumed or deleted. It is emptied in steps, so that its runs
 * do not take the queue from those of other automations.
 */
export const UNLIMITED_PLACES = 1000;

/**
 * Gives free places of a lane to its first runs, and removes an empty lane. The lane of a paused automation has no places; a
 * disabled one's runs are released to be cancelled.
 */
const RELEASE = `${TOUCH}
  local limit = ${UNLIMITED_PLACES}
  local id, concurrency, pausedAt, enabled, resuming = unpack(redis.call('HMGET', KEYS[1], 'id', 'concurrency', 'pausedAt',
    'enabled', 'resuming'))
  local isOwn = id == ARGV[1]
  if isOwn then
    limit = tonumber(concurrency or limit)
    if pausedAt and enabled == '1' then limit = 0 end
  end
  local released = {}
  while #released < ${UNLIMITED_PLACES} and redis.call('SCARD', KEYS[3]) < limit do
    local runId = redis.call('ZPOPMIN', KEYS[2])[1]
    if not runId then break end
    redis.call('SADD', KEYS[3], runId)
    released[#released + 1] = runId
  end
  if isOwn and resuming and redis.call('ZCARD', KEYS[2]) == 0 then
    redis.call('HDEL', KEYS[1], 'resuming')
    touch(KEYS[1], ARGV[2])
  end
  if redis.call('ZCARD', KEYS[2]) + redis.call('SCARD', KEYS[3]) == 0 then redis.call('HDEL', KEYS[4], ARGV[1]) end
  return released`;

/**
 * Removes an ended run from its lane. Does nothing to a run that has not ended: a Redis restored from a backup may have the run
 * of a late command waiting in its lane again, and nothing would start it outside of it.
 */
const LEAVE = `
  local lane, laneRunning, job = unpack(KEYS)
  if redis.call('EXISTS', job) == 1 and redis.call('HEXISTS', job, 'finishedOn') == 0 then return end
  redis.call('ZREM', lane, ARGV[1])
  redis.call('SREM', laneRunning, ARGV[1])`;

/** Lanes looked at per script, which blocks Redis only briefly. */
const SCAN_BATCH = 500;

/** Looks at some lanes. @param lane key of the lane of `id` @param automation key of the automation of `slug` */
function parkedScript(lane: string, automation: string): string {
  return `
    local scan = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ${SCAN_BATCH})
    local rows = {}
    for i = 1, #scan[2], 2 do
      local id, slug = scan[2][i], scan[2][i + 1]
      local owner, pausedAt = unpack(redis.call('HMGET', '${automation}', 'id', 'pausedAt'))
      rows[#rows + 1] = {id, slug, redis.call('ZCARD', '${lane}'), redis.call('ZRANGE', '${lane}', 0, 0)[1] or '',
        owner == id and pausedAt and 1 or 0}
    end
    return {scan[1], rows}`;
}

/** The automation that a lane belongs to. */
export interface LaneOwner {
  automationId: string;
  slug: string;
}

/** The runs that wait in one lane. */
export interface ParkedRuns {
  /** Of its automation. */
  slug: string;
  count: number;
  /** Id of the run that is next. */
  first?: string | undefined;
  isPaused: boolean;
}

/**
 * Concurrency limits over all workers, and paused automations, whose lanes have no places. A run of an automation with a
 * limit waits in the automation's lane, in order of acceptance and outside the workers' queue, until it gets a place; it keeps
 * the place until it has ended.
 * {@link RunLanes.tidy} repairs what a crash leaves unfinished. Runs outside of every lane are not looked for: the script that
 * accepts a run parks it and puts it into its lane in one step.
 */
export class RunLanes {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #queue: QueueOpener;

  constructor(redis: RedisClient, keys: Keys, queue: QueueOpener) {
    this.#redis = redis;
    this.#keys = keys;
    this.#queue = queue;
  }

  /** Removes an ended run from its lane and gives its place to the next run. */
  async leave(owner: LaneOwner, runId: string): Promise<void> {
    const { lane, laneRunning } = this.#keys;
    const keys = [lane(owner.automationId), laneRunning(owner.automationId), jobKeyOf(this.#keys, runId)];
    await this.#redis.eval(LEAVE, keys.length, ...keys, runId);
    await this.release(owner);
  }

  /** What waits in each lane. */
  async parked(): Promise<ParkedRuns[]> {
    const { automation, lane, lanes } = this.#keys;
    const script = parkedScript(lane("' .. id .. '"), automation("' .. slug .. '"));
    const found = new Map<string, ParkedRuns>();
    let cursor = '0';
    do {
      const reply = await this.#redis.eval(script, 1, lanes, cursor);
      const [next, rows] = reply as [
        string,
        [id: string, slug: string, count: number, first: string, isPaused: number][],
      ];
      // A scan may find a lane twice.
      for (const [id, slug, count, first, isPaused] of rows) {
        found.set(id, { slug, count, first: first || undefined, isPaused: isPaused === 1 });
      }
      cursor = next;
    } while (cursor !== '0');
    return [...found.values()];
  }

  /** The runs that have the places of an automation's lane, the one accepted first at the beginning. */
  async holders(automationId: string): Promise<string[]> {
    return (await this.#redis.smembers(this.#keys.laneRunning(automationId))).sort();
  }

  /** Goes over all lanes: frees the places of runs that have ended, and starts those that were given a place only. */
  async tidy(): Promise<void> {
    const queue = await this.#queue.open();
    const lanes = await this.#redis.hgetall(this.#keys.lanes);
    for (const [automationId, slug] of Object.entries(lanes)) {
      const owner = { automationId, slug };
      for (const runId of await this.#redis.smembers(this.#keys.laneRunning(automationId))) {
        const job = await queue.getJob(runId);
        if (!job || job.finishedOn !== undefined) await this.leave(owner, runId);
        else if (job.delay === PARKED_MS) await this.#start(runId);
      }
      await this.release(owner);
    }
  }

  /** Gives free places to the next runs and starts them. */
  async release({ automationId, slug }: LaneOwner): Promise<void> {
    const { automation, lane, laneRunning, lanes } = this.#keys;
    const keys = [automation(slug), lane(automationId), laneRunning(automationId), lanes];
    const values = [automationId, Date.now()];
    const released = (await this.#redis.eval(RELEASE, keys.length, ...keys, ...values)) as string[];
    for (const runId of released) await this.#start(runId);
  }

  /** Starts a run that was just parked if it has left its lane in the meantime: nothing could start it before. */
  async startReleased({ automationId }: LaneOwner, runId: string): Promise<void> {
    const score = await this.#redis.zscore(this.#keys.lane(automationId), runId);
    if (score === null) await this.#start(runId);
  }

  /** Moves a waiting run from its lane into the queue. Does nothing if it is already there or gone. */
  async #start(runId: string): Promise<void> {
    const backend = (await this.#queue.open()).getBackend();
    if ((await backend.getState(runId)) === 'delayed') await backend.promote(runId).catch(() => undefined);
  }
}
