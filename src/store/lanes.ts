import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { QueueOpener } from './queue.ts';

/** A run in a lane is a BullMQ job delayed by this long, in milliseconds: five years. */
export const PARKED_MS = 5 * 365 * 86_400_000;

/** A lane without a limit, because its automation was deleted, is emptied in steps of this many runs. */
const RELEASE_BATCH = 1000;

/** Gives free places of a lane to its first runs, and removes an empty lane. */
const RELEASE = `
  local limit = ${RELEASE_BATCH}
  if redis.call('HGET', KEYS[1], 'id') == ARGV[1] then
    limit = tonumber(redis.call('HGET', KEYS[1], 'concurrency') or limit)
  end
  local released = {}
  while #released < ${RELEASE_BATCH} and redis.call('SCARD', KEYS[3]) < limit do
    local runId = redis.call('ZPOPMIN', KEYS[2])[1]
    if not runId then break end
    redis.call('SADD', KEYS[3], runId)
    released[#released + 1] = runId
  end
  if redis.call('ZCARD', KEYS[2]) + redis.call('SCARD', KEYS[3]) == 0 then redis.call('HDEL', KEYS[4], ARGV[1]) end
  return released`;

/** The automation that a lane belongs to. */
export interface LaneOwner {
  automationId: string;
  slug: string;
}

/**
 * Concurrency limits over all workers. A run of an automation with a limit waits in the automation's lane, in order of
 * acceptance and outside the workers' queue, until it gets a place; it keeps the place until it has ended.
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
    await this.#redis
      .multi()
      .zrem(lane(owner.automationId), runId)
      .srem(laneRunning(owner.automationId), runId)
      .exec();
    await this.release(owner);
  }

  /** The runs that wait in all lanes: how many, and the first of each lane. */
  async parked(): Promise<{ count: number; heads: string[] }> {
    const lanes = Object.keys(await this.#redis.hgetall(this.#keys.lanes)).map((id) => this.#keys.lane(id));
    const counts = await Promise.all(lanes.map((lane) => this.#redis.zcard(lane)));
    const heads = await Promise.all(lanes.map((lane) => this.#redis.zrange(lane, 0, '0')));
    return { count: counts.reduce((sum, count) => sum + count, 0), heads: heads.flat() };
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
        else if (job.attemptsStarted === 0) await this.#start(runId);
      }
      await this.release(owner);
    }
  }

  /** Gives free places to the next runs and starts them. */
  async release({ automationId, slug }: LaneOwner): Promise<void> {
    const { automation, lane, laneRunning, lanes } = this.#keys;
    const keys = [automation(slug), lane(automationId), laneRunning(automationId), lanes];
    const released = (await this.#redis.eval(RELEASE, keys.length, ...keys, automationId)) as string[];
    for (const runId of released) await this.#start(runId);
  }

  /** Moves a waiting run from its lane into the queue. Does nothing if it is already there or gone. */
  async #start(runId: string): Promise<void> {
    const backend = (await this.#queue.open()).getBackend();
    if ((await backend.getState(runId)) === 'delayed') await backend.promote(runId).catch(() => undefined);
  }
}
