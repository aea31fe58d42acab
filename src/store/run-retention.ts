import type { RedisClient } from './connect.ts';
import type { KeptBytes } from './kept-bytes.ts';
import type { Keys } from './keys.ts';
import type { QueueOpener } from './queue.ts';
import { acceptedAtOf } from './run-id.ts';
import type { RunIndex } from './run-index.ts';
import { toRun } from './run-record.ts';

/** How often one of the workers sweeps, in milliseconds. */
export const RETENTION_MS = 10_000;

/** Runs are removed this many at a time. */
const BATCH = 500;

/** Of one automation, this many batches of runs are removed at most before the others have their turn. */
const MAX_BATCHES = 20;

/** Minimum age of a removed run, in milliseconds: a request repeated after a lost answer must find its run. */
const MIN_AGE_MS = 60_000;

/** How long ended runs are kept; neither limit is exceeded for longer than a turn. */
export interface RetentionLimits {
  /** Milliseconds since their end. */
  maxAgeMs: number;
  /** Ended runs per automation, for automations without a maximum of their own. */
  maxRuns: number;
  /** KEEP_BYTES, if it is set: bytes of what is kept with all runs. */
  keepBytes?: number | undefined;
}

/** Removes runs that are no longer kept, with what is kept with them and their index entries. */
export class RunRetention {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #queue: QueueOpener;
  readonly #index: RunIndex;
  readonly #kept: KeptBytes;

  constructor(
    redis: RedisClient,
    keys: Keys,
    { queue, index, kept }: { queue: QueueOpener; index: RunIndex; kept: KeptBytes },
  ) {
    this.#redis = redis;
    this.#keys = keys;
    this.#queue = queue;
    this.#index = index;
    this.#kept = kept;
  }

  /** Sweeps if no other worker has done so since the last turn. When Redis is full, nobody can take a turn; all make room. */
  async takeTurn(workerId: string, limits: RetentionLimits): Promise<void> {
    const taking = this.#redis.set(this.#keys.retentionTurn, workerId, 'PX', RETENTION_MS, 'NX');
    const turn = await taking.catch((error: Error) => {
      if (!error.message.startsWith('OOM')) throw error;
      return 'full' as const;
    });
    if (turn === 'full') await this.#kept.shrink(limits.keepBytes);
    else if (turn !== null) await this.sweep(limits);
  }

  /** Goes over all automations until no run is left that need not be kept. @returns how many runs were removed */
  async sweep(limits: RetentionLimits): Promise<number> {
    let removed = 0;
    for (let hasMore = true; hasMore; ) {
      const round = await this.#sweepOnce(limits);
      removed += round.removed;
      hasMore = round.hasMore;
    }
    await this.#kept.shrink(limits.keepBytes);
    return removed;
  }

  async #sweepOnce({ maxAgeMs, maxRuns }: RetentionLimits): Promise<{ removed: number; hasMore: boolean }> {
    const endedBefore = Date.now() - maxAgeMs;
    await this.#dropMissing();
    await this.#index.adoptFailed();
    let removed = 0;
    let hasMore = false;
    const slugs = await this.#index.slugs();
    await this.#index.dropFailed(slugs, endedBefore - MIN_AGE_MS);
    for (const { slug, ended, oldest, oldestOpen, id, ownKeepRuns } of await this.#look(slugs)) {
      await this.#tidy(slug, oldestOpen);
      await this.#finishEnded(slug);
      const keepRuns = Number(ownKeepRuns ?? maxRuns);
      // A run ends after its acceptance: one accepted later than this cannot be too old.
      if (ended > keepRuns || (oldest !== undefined && acceptedAtOf(oldest).getTime() < endedBefore)) {
        const done = await this.#remove(slug, keepRuns, endedBefore);
        removed += done.removed;
        hasMore ||= done.hasMore;
      }
      if (!id && ended === 0 && oldestOpen.length === 0) await this.#index.forget(slug);
    }
    return { removed, hasMore };
  }

  #look(slugs: readonly string[]) {
    const { automation, endedRuns, openRuns } = this.#keys;
    const looks = slugs.map(async (slug) => {
      const [ended, [oldest], oldestOpen, [id, ownKeepRuns]] = await Promise.all([
        this.#redis.zcard(endedRuns(slug)),
        this.#redis.zrange(endedRuns(slug), 0, '0'),
        this.#redis.zrange(openRuns(slug), 0, '99'),
        this.#redis.hmget(automation(slug), 'id', 'keepRuns'),
      ]);
      return { slug, ended, oldest, oldestOpen, id, ownKeepRuns };
    });
    return Promise.all(looks);
  }

  /** Repairs the index: moves open runs that are gone. */
  async #tidy(slug: string, runIds: string[]): Promise<void> {
    const ends = await this.#ends(runIds);
    for (const [index, runId] of runIds.entries()) {
      if (ends[index] === 0) await this.#index.end(slug, runId);
    }
  }

  /** Finishes what a crash has left: moves every run that has ended and is listed as open, and queues its event. */
  async #finishEnded(slug: string): Promise<void> {
    const queue = await this.#queue.open();
    for await (const runIds of this.#index.endedButOpen(slug)) {
      for (const runId of runIds) {
        const job = await queue.getJob(runId);
        if (!job) continue;
        await this.#index.end(slug, runId, {
          run: toRun(job, false),
          automationId: job.data.automationId,
        });
      }
    }
  }

  /** Drops missing runs from the index of all automations, which the earlier version does not update. */
  async #dropMissing(): Promise<void> {
    for (const key of [this.#keys.openRuns(), this.#keys.endedRuns()]) {
      const runIds = await this.#redis.zrange(key, 0, `${BATCH - 1}`);
      const ends = await this.#ends(runIds);
      const missing = runIds.filter((_, index) => ends[index] === 0);
      if (missing.length > 0) await this.#redis.zrem(key, ...missing);
    }
  }

  /** Removes the oldest runs: those beyond `keepRuns`, and those that ended before the time. */
  async #remove(
    slug: string,
    keepRuns: number,
    endedBefore: number,
  ): Promise<{ removed: number; hasMore: boolean }> {
    const queue = await this.#queue.open();
    const key = this.#keys.endedRuns(slug);
    let removed = 0;
    for (let batch = 0; batch < MAX_BATCHES; batch += 1) {
      // Counted after they are read: another worker that sweeps in between makes the surplus smaller, never too large.
      const [runIds, count] = await Promise.all([
        this.#redis.zrange(key, 0, `${BATCH - 1}`),
        this.#redis.zcard(key),
      ]);
      const ends = await this.#ends(runIds);
      const acceptedBefore = Date.now() - MIN_AGE_MS;
      const outdated = runIds.filter((runId, index) => {
        const isSurplus = index < count - keepRuns || Number(ends[index] ?? 0) < endedBefore;
        return isSurplus && acceptedAtOf(runId).getTime() < acceptedBefore;
      });
      if (outdated.length === 0) return { removed, hasMore: false };
      // What they keep is counted in their jobs.
      await this.#kept.drop(outdated);
      await Promise.all(outdated.map((runId) => queue.remove(runId)));
      await this.#index.remove(slug, outdated);
      removed += outdated.length;
      if (runIds.length < BATCH) return { removed, hasMore: false };
    }
    return { removed, hasMore: true };
  }

  /** When each run ended, in milliseconds since the epoch: 0 if it is gone, undefined if it has not ended. */
  async #ends(runIds: readonly string[]): Promise<(number | undefined)[]> {
    const queue = await this.#queue.open();
    const fields = await Promise.all(
      runIds.map((runId) => this.#redis.hmget(queue.toKey(runId), 'timestamp', 'finishedOn')),
    );
    return fields.map(([timestamp, finishedOn]) => {
      if (!timestamp) return 0;
      return finishedOn ? Number(finishedOn) : undefined;
    });
  }
}
