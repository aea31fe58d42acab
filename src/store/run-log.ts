import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** Where a piece of a run's log comes from: the action's two outputs, or orc itself. */
export type RunLogSource = 'stdout' | 'stderr' | 'orc';

export interface RunLogEntry {
  /** When the worker received it. */
  time: Date;
  attempt: number;
  source: RunLogSource;
  /** Number of bytes of the attempt's log before this entry; a gap before it, or between two entries, was cut out. */
  offset: number;
  data: Buffer;
}

/** Identifies an entry that is stored, and orders it among the run's others. */
export type RunLogPosition = string;

const READ_BATCH = 200;

/** What runs printed, one Redis stream per run, bytes as they came. */
export class RunLogStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** Appends entries and removes others, without waiting in between. The log ends `ttlSeconds` after its last entry. */
  async append(
    runId: string,
    entries: readonly RunLogEntry[],
    remove: readonly RunLogPosition[],
    ttlSeconds: number,
  ): Promise<RunLogPosition[]> {
    const key = this.#keys.runLog(runId);
    // No pipeline: over a cluster that has lost its master, one of ioredis' can stay unanswered for ever.
    const added = entries.map(({ time, attempt, source, offset, data }) =>
      this.#redis.xadd(key, '*', 't', time.getTime(), 'a', attempt, 's', source, 'o', offset, 'd', data),
    );
    const others = [
      ...(remove.length > 0 ? [this.#redis.xdel(key, ...remove)] : []),
      this.#redis.expire(key, Math.ceil(ttlSeconds)),
    ];
    const [positions] = await Promise.all([Promise.all(added), Promise.all(others)]);
    return positions.map(String);
  }

  /** Lists what is stored, in order, without the data. */
  async list(runId: string): Promise<{ position: RunLogPosition; attempt: number; bytes: number }[]> {
    const stored: { position: RunLogPosition; attempt: number; bytes: number }[] = [];
    let start = '-';
    for (;;) {
      const rows = await this.#redis.xrangeBuffer(this.#keys.runLog(runId), start, '+', 'COUNT', READ_BATCH);
      for (const [id, fields] of rows) {
        const { attempt, data } = decode(fields);
        stored.push({ position: id.toString(), attempt, bytes: data.length });
      }
      const last = stored.at(-1);
      if (rows.length === 0 || !last) return stored;
      start = `(${last.position}`;
    }
  }

  /**
   * Reads the entries after a position, at most some hundred at a time.
   *
   * @param after the position of the last entry already read; without it, from the beginning
   */
  async read(
    runId: string,
    after?: RunLogPosition,
  ): Promise<{ entries: RunLogEntry[]; position: RunLogPosition | undefined }> {
    const start = after === undefined ? '-' : `(${after}`;
    const rows = await this.#redis.xrangeBuffer(this.#keys.runLog(runId), start, '+', 'COUNT', READ_BATCH);
    const position = rows.at(-1)?.[0].toString() ?? after;
    return { entries: rows.map(([, fields]) => decode(fields)), position };
  }
}

function decode(fields: Buffer[]): RunLogEntry {
  const values = new Map<string, Buffer>();
  for (let index = 0; index + 1 < fields.length; index += 2) {
    values.set(String(fields[index]), fields[index + 1] ?? Buffer.alloc(0));
  }
  const text = (name: string) => String(values.get(name) ?? '');
  return {
    time: new Date(Number(text('t'))),
    attempt: Number(text('a')),
    source: text('s') as RunLogSource,
    offset: Number(text('o')),
    data: values.get('d') ?? Buffer.alloc(0),
  };
}
