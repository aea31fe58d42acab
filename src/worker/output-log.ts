import type { RunLogEntry, RunLogPosition, RunLogSource, RunLogStore } from '../store/run-log.ts';

/** What is kept of one attempt's log: this many bytes from its beginning, and as many from its end. */
const HEAD_BYTES = 512 * 1024;
const TAIL_BYTES = 512 * 1024;

/** What Redis needs for an entry besides its data, in bytes, so that many tiny entries are bounded as well. */
const ENTRY_OVERHEAD_BYTES = 64;

/** Output is stored this long after it came, in milliseconds, together with what else came meanwhile. */
const FLUSH_MS = 50;

/** Pieces of output are joined up to this size, in bytes. */
const ENTRY_BYTES = 16 * 1024;

/**
 * Stores one attempt's log while it is written, bounded in Redis and in memory: of a long output, the beginning and the
 * end stay and the middle goes. Writing never waits and never fails; what Redis does not take is dropped.
 */
export class OutputLog {
  readonly #store: RunLogStore;
  readonly #runId: string;
  readonly #attempt: number;
  readonly #ttlSeconds: number;
  #pending: RunLogEntry[] = [];
  #pendingBytes = 0;
  #offset = 0;
  #headBytes = 0;
  #tail: { position: RunLogPosition; bytes: number }[] = [];
  #tailBytes = 0;
  #flushing: Promise<void> | undefined;

  /** @param ttlSeconds how long the log is kept after its last entry */
  constructor(store: RunLogStore, run: { id: string; attempt: number }, ttlSeconds: number) {
    this.#store = store;
    this.#runId = run.id;
    this.#attempt = run.attempt;
    this.#ttlSeconds = ttlSeconds;
  }

  /** Adds bytes of one source, as they came. */
  write(source: RunLogSource, data: Buffer): void {
    const last = this.#pending.at(-1);
    if (last?.source === source && last.data.length + data.length <= ENTRY_BYTES) {
      last.data = Buffer.concat([last.data, data]);
    } else {
      this.#pending.push({ time: new Date(), attempt: this.#attempt, source, offset: this.#offset, data });
    }
    this.#offset += data.length;
    this.#pendingBytes += data.length;
    this.#dropSurplus();
    this.#flushing ??= this.#flushSoon();
  }

  /** Adds a line of orc itself. */
  note(line: string): void {
    this.write('orc', Buffer.from(`${line}\n`));
  }

  /** Resolves when everything written so far is stored, or Redis has refused it. */
  async flush(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  /** Output comes faster than Redis takes it: beyond the head, only the latest is of interest. */
  #dropSurplus(): void {
    let index = this.#pending.findIndex(({ offset }) => offset >= HEAD_BYTES);
    if (index < 0) index = this.#pending.length;
    while (this.#pendingBytes > HEAD_BYTES + TAIL_BYTES && index < this.#pending.length - 1) {
      const [dropped] = this.#pending.splice(index, 1);
      this.#pendingBytes -= dropped?.data.length ?? 0;
    }
  }

  async #flushSoon(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, FLUSH_MS));
    const entries = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    try {
      const positions = await this.#store.append(this.#runId, entries, this.#outdated(), this.#ttlSeconds);
      entries.forEach(({ data }, index) => {
        const position = positions[index];
        const bytes = data.length + ENTRY_OVERHEAD_BYTES;
        if (this.#headBytes < HEAD_BYTES) this.#headBytes += bytes;
        else if (position !== undefined) {
          this.#tail.push({ position, bytes });
          this.#tailBytes += bytes;
        }
      });
    } catch {
      // The run itself matters more than its log; that Redis is away is reported elsewhere.
    }
    this.#flushing = this.#pending.length > 0 || this.#tailBytes > TAIL_BYTES ? this.#flushSoon() : undefined;
  }

  /** The oldest entries of a tail that has become too long. */
  #outdated(): RunLogPosition[] {
    const outdated: RunLogPosition[] = [];
    while (this.#tailBytes > TAIL_BYTES && this.#tail.length > 1) {
      const oldest = this.#tail.shift();
      if (!oldest) break;
      outdated.push(oldest.position);
      this.#tailBytes -= oldest.bytes;
    }
    return outdated;
  }
}
