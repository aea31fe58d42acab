import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { jobKeyOf } from './queue.ts';
import { readMaxMemory } from './redis-report.ts';

/**
 * orc's own field of an ended run's hash: the bytes of Redis' memory that were counted for what is kept with the run. 0 when
 * that was removed to stay within KEEP_BYTES; absent when nothing was kept.
 */
export const KEPT_FIELD = 'kept';

/** The field of the hash of kept bytes for all automations together; no slug has a colon. */
export const TOTAL_FIELD = ':total';

/** The default of KEEP_BYTES: this many bytes, or this share of Redis' `maxmemory`, whichever is less. */
const DEFAULT_KEEP_BYTES = 1_073_741_824;
const DEFAULT_SHARE = 0.25;

/** The `maxmemory` of Redis is asked for again after this long, in milliseconds. */
const MAXMEMORY_MS = 10_000;

/** Of a full budget this share is left, so that not every run that ends removes something. */
const LEFT_SHARE = 0.95;

/** Runs looked at per script, which blocks Redis only briefly. */
const BATCH = 100;

/**
 * Removes what is kept with runs, one after the other, until the total is at most ARGV[1]. Returns how many runs were looked
 * at and the total. KEYS: the kept bytes, then for each run its job and what is kept with it: ARGV[2] keys. UNLINK comes first:
 * a script that has written may write more although Redis is out of memory.
 */
const DROP = `
  local keptBytes, target, width = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
  local total = tonumber(redis.call('HGET', keptBytes, '${TOTAL_FIELD}') or 0)
  local function subtract(field, bytes)
    local rest = redis.call('HINCRBY', keptBytes, field, -bytes)
    if rest <= 0 then redis.call('HDEL', keptBytes, field) end
    return rest
  end
  local looked = 0
  for first = 2, #KEYS, width do
    if total <= target then break end
    looked = looked + 1
    local slug, bytes = unpack(redis.call('HMGET', KEYS[first], 'name', '${KEPT_FIELD}'))
    if bytes ~= '0' then
      redis.call('UNLINK', unpack(KEYS, first + 1, first + width - 1))
      if slug then redis.call('HSET', KEYS[first], '${KEPT_FIELD}', 0) end
      if bytes then
        subtract(slug, bytes)
        total = subtract('${TOTAL_FIELD}', bytes)
      end
    end
  end
  return {looked, total}`;

/** What the logs, results and artifacts of ended runs take of Redis' memory. */
export interface KeptUsage {
  bytes: number;
  /** KEEP_BYTES, or its default. */
  limitBytes: number;
  /** Those that take most first. */
  automations: { slug: string; bytes: number }[];
}

/**
 * The one budget for the logs, results and artifacts of ended runs. What a run keeps is counted when it ends, and subtracted when
 * it is removed. Beyond the budget, those of the runs that were accepted first are removed; the runs themselves stay. What
 * runs keep while they execute is not counted: per run a log of 1 MiB and its artifacts at most.
 */
export class KeptBytes {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  #maxMemory: { bytes: number; readAt: number } | undefined;
  #shrinking: Promise<void> | undefined;
  /**
   * Where the next search begins; earlier runs keep nothing any more. Only this process knows it: a run that was accepted
   * before it and ends later is found when the search begins anew.
   */
  #after = '-';

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** @param keepBytes KEEP_BYTES, if it is set */
  async usage(keepBytes: number | undefined): Promise<KeptUsage> {
    const [limitBytes, fields] = await Promise.all([
      this.#limit(keepBytes),
      this.#redis.hgetall(this.#keys.keptBytes),
    ]);
    const { [TOTAL_FIELD]: total = '0', ...bySlug } = fields;
    const automations = Object.entries(bySlug).map(([slug, bytes]) => ({ slug, bytes: Number(bytes) }));
    automations.sort((a, b) => b.bytes - a.bytes);
    return { bytes: Number(total), limitBytes, automations };
  }

  /** Whether the log, the result and the artifacts of a run were removed to stay within the budget. */
  async wasDropped(runId: string): Promise<boolean> {
    return (await this.#redis.hget(jobKeyOf(this.#keys, runId), KEPT_FIELD)) === '0';
  }

  /** Removes all that is kept with these runs, whatever the budget. */
  async drop(runIds: readonly string[]): Promise<void> {
    await this.#drop(runIds, Number.MIN_SAFE_INTEGER);
  }

  /**
   * Removes what the oldest runs keep, if the budget is exceeded.
   *
   * @param keepBytes KEEP_BYTES, if it is set
   * @param total the bytes that are kept now; asked for when absent
   */
  async shrink(keepBytes: number | undefined, total?: number): Promise<void> {
    const limit = await this.#limit(keepBytes);
    const kept = total ?? Number(await this.#redis.hget(this.#keys.keptBytes, TOTAL_FIELD));
    if (kept <= limit) return;
    this.#shrinking ??= this.#shrink(limit * LEFT_SHARE).finally(() => {
      this.#shrinking = undefined;
    });
    await this.#shrinking;
  }

  async #shrink(target: number): Promise<void> {
    for (let isWhole = this.#after === '-'; ; ) {
      const range = [this.#keys.endedRuns(), this.#after, '+'] as const;
      const runIds = await this.#redis.zrange(...range, 'BYLEX', 'LIMIT', 0, BATCH);
      if (runIds.length === 0) {
        this.#after = '-';
        // Nothing is kept, so the count is wrong: somebody has removed runs without orc.
        if (isWhole) return void (await this.#redis.del(this.#keys.keptBytes));
        isWhole = true;
        continue;
      }
      const [looked, total] = await this.#drop(runIds, target);
      const last = runIds[looked - 1];
      if (last !== undefined) this.#after = `(${last}`;
      if (total <= target) return;
    }
  }

  async #drop(runIds: readonly string[], target: number): Promise<[looked: number, total: number]> {
    const keys = runIds.map((runId) => [jobKeyOf(this.#keys, runId), ...this.#keys.keptWithRun(runId)]);
    const all = [this.#keys.keptBytes, ...keys.flat()];
    const width = keys[0]?.length ?? 1;
    return (await this.#redis.eval(DROP, all.length, ...all, target, width)) as [number, number];
  }

  async #limit(keepBytes: number | undefined): Promise<number> {
    if (keepBytes !== undefined) return keepBytes;
    if (!this.#maxMemory || Date.now() - this.#maxMemory.readAt > MAXMEMORY_MS) {
      this.#maxMemory = { bytes: await readMaxMemory(this.#redis, this.#keys), readAt: Date.now() };
    }
    const { bytes } = this.#maxMemory;
    return bytes === 0 ? DEFAULT_KEEP_BYTES : Math.min(DEFAULT_KEEP_BYTES, Math.floor(bytes * DEFAULT_SHARE));
  }
}
