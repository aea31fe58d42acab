import type { AgentEvent } from '../core/agent-event.ts';
import type { RunLogEntry, RunLogPosition, RunLogSource, RunLogStore } from '../store/run-log.ts';
import { LastLine } from './last-line.ts';
import type { MaskedStream, SecretMask } from './secret-mask.ts';

/** Kept of a run's log, over all its attempts: its beginning and its end, in bytes. */
const HEAD_BYTES = 512 * 1024;
const TAIL_BYTES = 512 * 1024;

/** Counted for each entry besides its data, in bytes, so that many tiny entries are bounded as well. */
const ENTRY_OVERHEAD_BYTES = 64;

/** Output is stored this long after it came, in milliseconds, together with what else came meanwhile. */
const FLUSH_MS = 50;

/** More output than this is not stored in a second, in bytes: most of it would be removed again soon. */
const FLUSH_BYTES_PER_SECOND = 1024 * 1024;

/** So much more than needed is held before it is dropped, in bytes: dropping goes over all that is held. */
const SURPLUS_BYTES = 64 * 1024;

/** Pieces of output are joined up to this size, in bytes. */
const ENTRY_BYTES = 16 * 1024;

/**
 * Stores one attempt's part of a run's log while it is written, bounded in Redis and in memory: a long log loses its
 * middle, except the last entry of each earlier attempt, whose offset shows what is missing. Secrets are hidden. Writing
 * never waits and never fails; what Redis refuses is dropped.
 */
export class OutputLog {
  readonly #store: RunLogStore;
  readonly #runId: string;
  readonly #attempt: number;
  readonly #ttlSeconds: number;
  readonly #mask: SecretMask;
  readonly #outputs: Record<'stdout' | 'stderr', MaskedStream>;
  readonly #lastLines = { stdout: new LastLine(), stderr: new LastLine() };
  #hasEnded = false;
  #pending: RunLogEntry[] = [];
  #pendingBytes = 0;
  #offset = 0;
  #headBytes = 0;
  /** What may be removed of the end, oldest first. */
  #tail: { position: RunLogPosition; bytes: number }[] = [];
  #tailBytes = 0;
  /** Whether output after the stored end was dropped, so that the stored end must go, too. */
  #isTailCut = false;
  /** A first attempt finds nothing stored. */
  #isResumed: boolean;
  #pauseMs = FLUSH_MS;
  /** Resolves when what is pending has been sent. */
  #sending: Promise<void> | undefined;
  /** Resolves when what was sent is stored, or Redis has refused it. */
  #storing: Promise<void> | undefined;
  /** Ends the pause before what is pending is sent. */
  #hurry: () => void = () => undefined;

  /** @param ttlSeconds how long the log is kept after its last entry */
  constructor(
    store: RunLogStore,
    run: { id: string; attempt: number },
    ttlSeconds: number,
    mask: SecretMask,
  ) {
    this.#store = store;
    this.#runId = run.id;
    this.#attempt = run.attempt;
    this.#ttlSeconds = ttlSeconds;
    this.#mask = mask;
    this.#outputs = { stdout: mask.stream(), stderr: mask.stream() };
    this.#isResumed = run.attempt <= 1;
  }

  /** Adds bytes of one output, as they came, without the secrets in them. */
  write(source: 'stdout' | 'stderr', data: Buffer): void {
    if (!this.#hasEnded) this.#print(source, this.#outputs[source].write(data));
  }

  /** Adds a line of orc itself. */
  note(line: string): void {
    if (!this.#hasEnded) this.#add('orc', Buffer.from(`${this.#mask.text(line)}\n`));
  }

  /** Hides the secrets in a text that comes in pieces, also those that are spread over several. */
  maskedStream(): MaskedStream {
    return this.#mask.stream();
  }

  /** A text without the secrets in it: before a part of it is cut off, which may be a part of a secret. */
  masked(text: string): string {
    return this.#mask.text(text);
  }

  /** Adds an event of an agent's transcript; it stays whole. */
  event(event: AgentEvent): void {
    if (this.#hasEnded) return;
    const line = JSON.stringify(event, (_, value) =>
      typeof value === 'string' ? this.#mask.text(value) : value,
    );
    this.#add('agent', Buffer.from(`${line}\n`));
  }

  /**
   * Adds what was held back of the outputs; they have ended.
   *
   * @returns the last line of the standard error or, without one, of the standard output
   */
  endOutputs(): string | undefined {
    for (const source of ['stdout', 'stderr'] as const) this.#print(source, this.#outputs[source].end());
    return this.#lastLines.stderr.text() ?? this.#lastLines.stdout.text();
  }

  /** Adds the last line, after {@link endOutputs}. What an action writes later is dropped. */
  end(line: string): void {
    this.endOutputs();
    this.note(line);
    this.#hasEnded = true;
  }

  #print(source: 'stdout' | 'stderr', data: Buffer): void {
    this.#lastLines[source].add(data);
    this.#add(source, data);
  }

  #add(source: RunLogSource, data: Buffer): void {
    if (data.length === 0) return;
    const last = this.#pending.at(-1);
    if (last?.source === source && last.data.length + data.length <= ENTRY_BYTES) {
      last.data = Buffer.concat([last.data, data]);
      this.#pendingBytes += data.length;
    } else {
      this.#pending.push({ time: new Date(), attempt: this.#attempt, source, offset: this.#offset, data });
      this.#pendingBytes += sizeOf(data.length);
    }
    this.#offset += data.length;
    this.#dropSurplus();
    this.#sending ??= this.#sendSoon();
  }

  /** Resolves when everything written so far is on its way: it is stored before what follows on the same connection. */
  async send(): Promise<void> {
    while (this.#sending !== undefined) {
      this.#hurry();
      await this.#sending;
    }
  }

  /** Resolves when everything written so far is stored, or Redis has refused it. */
  async flush(): Promise<void> {
    await this.send();
    await this.#storing;
  }

  /** Output comes faster than Redis takes it: beyond the head, only the latest is of interest. */
  #dropSurplus(): void {
    const room = this.#headRoom();
    let surplus = this.#pendingBytes - room - TAIL_BYTES;
    if (surplus <= SURPLUS_BYTES) return;
    let first = 0;
    for (let bytes = 0; first < this.#pending.length && bytes < room; first++) {
      bytes += sizeOf(this.#pending[first]?.data.length ?? 0);
    }
    let next = first;
    for (; surplus > 0 && next < this.#pending.length - 1; next++) {
      const bytes = sizeOf(this.#pending[next]?.data.length ?? 0);
      surplus -= bytes;
      this.#pendingBytes -= bytes;
    }
    this.#pending.splice(first, next - first);
    if (next > first) this.#isTailCut = true;
  }

  #headRoom(): number {
    return Math.max(HEAD_BYTES - this.#headBytes, 0);
  }

  async #sendSoon(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, this.#pauseMs);
      this.#hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    await this.#storing;
    const entries = this.#pending;
    const bytes = this.#pendingBytes;
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#pauseMs = Math.max(FLUSH_MS, (bytes / FLUSH_BYTES_PER_SECOND) * 1000);
    // The run itself matters more than its log; that Redis is away is reported elsewhere.
    const isResumed = await this.#resume().catch(() => false);
    if (isResumed) this.#storing = this.#append(entries, bytes).catch(() => undefined);
    this.#sending = this.#pending.length > 0 ? this.#sendSoon() : undefined;
  }

  async #append(entries: RunLogEntry[], bytes: number): Promise<void> {
    const outdated = this.#outdated(bytes - this.#headRoom());
    const positions = await this.#store.append(this.#runId, entries, outdated, this.#ttlSeconds);
    for (const [index, { data }] of entries.entries()) this.#count(data.length, positions[index]);
  }

  /** Takes up the account of what earlier attempts have stored, on whichever worker. */
  async #resume(): Promise<boolean> {
    if (this.#isResumed) return true;
    const stored = await this.#store.list(this.#runId);
    const last = new Map(stored.map(({ attempt, position }) => [attempt, position]));
    for (const { position, attempt, bytes } of stored) {
      this.#count(bytes, last.get(attempt) === position ? undefined : position);
    }
    this.#isResumed = true;
    return true;
  }

  /** @param position of an entry that may be removed */
  #count(dataBytes: number, position: RunLogPosition | undefined): void {
    const bytes = sizeOf(dataBytes);
    if (this.#headBytes < HEAD_BYTES) {
      this.#headBytes += bytes;
      return;
    }
    this.#tailBytes += bytes;
    if (position !== undefined) this.#tail.push({ position, bytes });
  }

  /** The oldest entries of a tail that becomes too long with what is added to it. */
  #outdated(addedBytes: number): RunLogPosition[] {
    const limit = this.#isTailCut ? 0 : TAIL_BYTES;
    this.#isTailCut = false;
    let surplus = this.#tailBytes + (limit && Math.max(addedBytes, 0)) - limit;
    const outdated: RunLogPosition[] = [];
    while (surplus > 0) {
      const oldest = this.#tail.shift();
      if (!oldest) break;
      outdated.push(oldest.position);
      surplus -= oldest.bytes;
      this.#tailBytes -= oldest.bytes;
    }
    return outdated;
  }
}

function sizeOf(dataBytes: number): number {
  return dataBytes + ENTRY_OVERHEAD_BYTES;
}
