import type { TerminalRunStatus } from '../core/run.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { acceptedAtOf, firstIdAt } from './run-id.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const MINUTES = 60;

/** How long an hour's counts stay after the last minute in which something was counted first, in seconds. */
const KEPT_SECONDS = 26 * 3600;

/** The fields of a minute. */
const FIELDS = ['accepted', 'succeeded', 'failed', 'cancelled'] as const;
type Field = (typeof FIELDS)[number];

/** What was accepted and what ended in a span of time. */
export interface RunCount extends Record<Field, number> {
  since: Date;
}

/**
 * Counts an ended run in the minutes of its end and of its acceptance. The script that accepts runs counts nothing: those accepted in a
 * minute are the ended ones that were counted here and the ones that are still open. Neither depends on how long runs are kept.
 */
export const COUNT_RUN = `
  local function countRun(key, field)
    if redis.call('HINCRBY', key, field, 1) == 1 then redis.call('EXPIRE', key, ${KEPT_SECONDS}) end
  end`;

function minuteOf(time: Date, status: 'accepted' | TerminalRunStatus): { hour: number; field: string } {
  const minute = Math.floor(time.getTime() / MINUTE_MS);
  return {
    hour: Math.floor(minute / MINUTES),
    field: fieldOf(minute % MINUTES, status === 'timed_out' ? 'failed' : status),
  };
}

function fieldOf(minute: number, field: Field): string {
  return `${minute}:${field}`;
}

/** Reads in one step, so that a run that ends is counted once. A span that begins before the oldest open run has none. */
const READ = `
  local counts = {}
  for i = 2, #KEYS do counts[i - 1] = redis.call('HGETALL', KEYS[i]) end
  local open = {}
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  for i = 1, #ARGV - 1 do
    open[i] = (oldest and oldest < ARGV[i + 1])
      and redis.call('ZLEXCOUNT', KEYS[1], '[' .. ARGV[i], '(' .. ARGV[i + 1]) or 0
  end
  return {counts, open}`;

/** What was accepted and what ended, minute by minute, for a day. */
export class RunCounts {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /**
   * The counts of the latest spans, the oldest first; the last one is under way.
   *
   * @param spans how many, in all at most a day
   * @param minutes of each span
   */
  async latest(spans: number, minutes: number, now = new Date()): Promise<RunCount[]> {
    const spanMs = minutes * MINUTE_MS;
    const end = (Math.floor(now.getTime() / spanMs) + 1) * spanMs;
    const start = end - spans * spanMs;
    const bounds = Array.from({ length: spans + 1 }, (_, index) =>
      firstIdAt(new Date(start + index * spanMs)),
    );
    const firstHour = Math.floor(start / HOUR_MS);
    const hours = Array.from(
      { length: Math.ceil(end / HOUR_MS) - firstHour },
      (_, index) => firstHour + index,
    );
    const keys = [this.#keys.openRuns(), ...hours.map((hour) => this.#keys.runCounts(`${hour}`))];
    const [counted, open] = (await this.#redis.eval(READ, keys.length, ...keys, ...bounds)) as [
      string[][],
      number[],
    ];
    const byHour = new Map(hours.map((hour, index) => [hour, toMap(counted[index] ?? [])]));
    return open.map((openRuns, index) => {
      const since = start + index * spanMs;
      const sum = (field: Field) => {
        let total = 0;
        for (let at = since; at < since + spanMs; at += MINUTE_MS) {
          const minute = (at % HOUR_MS) / MINUTE_MS;
          total += byHour.get(Math.floor(at / HOUR_MS))?.get(fieldOf(minute, field)) ?? 0;
        }
        return total;
      };
      return {
        since: new Date(since),
        accepted: openRuns + sum('accepted'),
        succeeded: sum('succeeded'),
        failed: sum('failed'),
        cancelled: sum('cancelled'),
      };
    });
  }
}

function toMap(pairs: readonly string[]): Map<string, number> {
  const map = new Map<string, number>();
  for (let index = 0; index < pairs.length; index += 2) map.set(pairs[index] ?? '', Number(pairs[index + 1]));
  return map;
}

/** Where an ended run is counted, for {@link COUNT_RUN}. */
export function countsOfEnd(runId: string, status: TerminalRunStatus, endedAt: Date) {
  return { accepted: minuteOf(acceptedAtOf(runId), 'accepted'), ended: minuteOf(endedAt, status) };
}
