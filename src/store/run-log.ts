import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/**
 * The source of a log entry: one of the action's outputs, orc itself, or the transcript of an agent, whose entries are whole
 * lines, each an `AgentEvent` as JSON.
 */
export type RunLogSource = 'stdout' | 'stderr' | 'orc' | 'agent';

export interface RunLogEntry {
  /** When the worker received it. */
  time: Date;
  attempt: number;
  source: RunLogSource;
  /** Number of bytes of the attempt's log before this entry; a gap before it, or between two entries, was cut out. */
  offset: number;
  data: Buffer;
}

/** Identifies a stored entry, and orders it within the run. */
export type RunLogPosition = string;

/** An entry and where it is stored. */
export interface StoredRunLogEntry {
  position: RunLogPosition;
  entry: RunLogEntry;
}

const READ_BATCH = 200;

/** Of {@link RunLogStore.tail}: a log of tiny entries is shown by its last thousand. */
const TAIL_READS = 5;

/** Entries appended per script, which blocks Redis only briefly. */
const APPEND_BATCH = 500;

/**
 * Appends entries, five arguments each, and removes others. ARGV: seconds to keep the log, number of entries to remove, their
 * ids. ioredis repeats the script after a lost connection: stored entries are not added
 * again. Entries with a later time are of another attempt with the same number, made after a backup was restored.
 */
const APPEND = `
  local first = 3 + ARGV[2]
  local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  if last then
    local _, time, _, attempt, _, _, _, offset, _, data = unpack(last[2])
    local isStored = attempt == ARGV[first + 1] and tonumber(ARGV[first + 3]) < offset + #data
    if isStored and tonumber(ARGV[first]) <= tonumber(time) then return {} end
  end
  local positions = {}
  for i = first, #ARGV, 5 do
    positions[#positions + 1] = redis.call('XADD', KEYS[1], '*',
      't', ARGV[i], 'a', ARGV[i + 1], 's', ARGV[i + 2], 'o', ARGV[i + 3], 'd', ARGV[i + 4])
  end
  for i = 3, first - 1 do redis.call('XDEL', KEYS[1], ARGV[i]) end
  redis.call('EXPIRE', KEYS[1], ARGV[1])
  return positions`;

/** The output of runs as bytes, one Redis stream per run. */
export class RunLogStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /**
   * Appends entries, none earlier than the stored ones of its attempt, and removes others. The log expires `ttlSeconds` after
   * its last entry.
   *
   * @returns the known positions of the new entries
   */
  async append(
    runId: string,
    entries: readonly RunLogEntry[],
    remove: readonly RunLogPosition[],
    ttlSeconds: number,
  ): Promise<RunLogPosition[]> {
    const appending: Promise<unknown>[] = [];
    for (let start = 0; start < entries.length; start += APPEND_BATCH) {
      const removed = start === 0 ? remove : [];
      const values: (string | number | Buffer)[] = [Math.ceil(ttlSeconds), removed.length, ...removed];
      for (const { time, attempt, source, offset, data } of entries.slice(start, start + APPEND_BATCH)) {
        values.push(time.getTime(), attempt, source, offset, data);
      }
      appending.push(this.#redis.eval(APPEND, 1, this.#keys.runLog(runId), ...values));
    }
    return (await Promise.all(appending)).flat() as RunLogPosition[];
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
    const stored = await this.readStored(runId, after);
    return { entries: stored.map(({ entry }) => entry), position: stored.at(-1)?.position ?? after };
  }

  /** As {@link read}, with the position of each entry. */
  async readStored(runId: string, after?: RunLogPosition): Promise<StoredRunLogEntry[]> {
    const start = after === undefined ? '-' : `(${after}`;
    const rows = await this.#redis.xrangeBuffer(this.#keys.runLog(runId), start, '+', 'COUNT', READ_BATCH);
    return rows.map(toStored);
  }

  /** The position of the last entry; undefined if there is none. */
  async lastPosition(runId: string): Promise<RunLogPosition | undefined> {
    const [last] = await this.#redis.xrevrange(this.#keys.runLog(runId), '+', '-', 'COUNT', 1);
    return last?.[0];
  }

  /**
   * Reads the end of a log, in at most {@link TAIL_READS} steps.
   *
   * @param bytes how much of it, rounded up to whole entries
   * @returns its entries in order, whether they are the whole log, and otherwise the position that they follow
   */
  async tail(runId: string, bytes: number): Promise<RunLogTail> {
    const found: StoredRunLogEntry[] = [];
    let missing = bytes;
    for (let step = 0; step < TAIL_READS; step++) {
      const end = found.at(-1);
      const rows = await this.#redis.xrevrangeBuffer(
        this.#keys.runLog(runId),
        end ? `(${end.position}` : '+',
        '-',
        'COUNT',
        READ_BATCH,
      );
      for (const stored of rows.map(toStored)) {
        if (missing <= 0) return { entries: found.reverse(), isWhole: false, before: stored.position };
        found.push(stored);
        missing -= stored.entry.data.length;
      }
      if (rows.length < READ_BATCH) return { entries: found.reverse(), isWhole: true };
    }
    // What it follows is not known; the first entry stands for it.
    const [first, ...entries] = found.reverse();
    return { entries, isWhole: false, ...(first && { before: first.position }) };
  }
}

/** The end of a log. */
export interface RunLogTail {
  entries: StoredRunLogEntry[];
  isWhole: boolean;
  /** The position that the entries follow; absent if they are the whole log. */
  before?: RunLogPosition;
}

function toStored([id, fields]: [id: Buffer, fields: Buffer[]]): StoredRunLogEntry {
  return { position: id.toString(), entry: decode(fields) };
}

/** The fields are in the order in which {@link APPEND} writes them. */
function decode(fields: Buffer[]): RunLogEntry {
  const [, time, , attempt, , source, , offset, , data = Buffer.alloc(0)] = fields;
  return {
    time: new Date(Number(time)),
    attempt: Number(attempt),
    source: String(source) as RunLogSource,
    offset: Number(offset),
    data,
  };
}
