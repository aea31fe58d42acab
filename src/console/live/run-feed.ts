import type { RunLogPosition, StoredRunLogEntry } from '../../store/run-log.ts';
import type { Store } from '../../store/store.ts';
import { type EventStream, encodeEvent } from './event-stream.ts';

/** A watched run is polled this often, in milliseconds, as `orc runs logs --follow` does. */
const POLL_MS = 200;

/** How often the stream of a silent run shows that it lives, and its session is judged, in milliseconds. */
const BEAT_MS = 15_000;

/** How often it is asked whether any session was ended before its time, in milliseconds. */
const SESSIONS_MS = 1000;

/** Streams of one process; further ones are told to come back later. */
const MAX_STREAMS = 1000;

/** A log entry on the wire: its data in base64, since it may be half a character. */
type WireEntry = [time: number, attempt: number, source: string, offset: number, data: string];

interface Watcher {
  stream: EventStream;
  /** The last entry that it was sent. */
  position: RunLogPosition | undefined;
  /** Whether it has caught up, and takes what is read for all. */
  isLive: boolean;
}

interface Feed {
  runId: string;
  watchers: Set<Watcher>;
  /** The last entry that was read for all. */
  position: RunLogPosition | undefined;
  state: string;
}

/**
 * Sends the logs of runs to those who watch them: `log` events whose ids are positions in the log, a `state` event whenever an
 * attempt begins or ends, and `end` when the run has ended and everything was sent. However many watch a run, it is read once;
 * only who comes late reads by himself what the others have.
 */
export class RunFeeds {
  readonly #store: Pick<Store, 'runs' | 'runLogs' | 'operators'>;
  readonly #onError: (error: Error) => void;
  readonly #feeds = new Map<string, Feed>();
  /** Whether the session of each open stream lives. */
  readonly #sessions = new Map<EventStream, () => Promise<boolean>>();
  #isWatchingSessions = false;
  #hasClosed = false;

  /** @param onError is told of failed reads of Redis; the streams of that run end, and their readers come back */
  constructor(store: Pick<Store, 'runs' | 'runLogs' | 'operators'>, onError: (error: Error) => void) {
    this.#store = store;
    this.#onError = onError;
  }

  /** How many streams are open. */
  get streams(): number {
    return this.#sessions.size;
  }

  /** Whether one more stream may be opened. */
  get hasPlace(): boolean {
    return !this.#hasClosed && this.streams < MAX_STREAMS;
  }

  /**
   * Sends a run's log until the run or the stream ends.
   *
   * @param after the last entry that the reader has
   * @param mayGoOn whether the reader's session lives; asked now and then, and when sessions were ended
   */
  watch(
    runId: string,
    after: RunLogPosition | undefined,
    stream: EventStream,
    mayGoOn: () => Promise<boolean>,
  ): void {
    if (!this.hasPlace) {
      stream.end();
      return;
    }
    const feed = this.#feeds.get(runId) ?? this.#open(runId, after);
    const watcher: Watcher = { stream, position: after, isLive: false };
    feed.watchers.add(watcher);
    if (feed.state !== '') stream.send(encodeEvent('state', { state: feed.state }));
    this.#sessions.set(stream, mayGoOn);
    if (!this.#isWatchingSessions) void this.#watchSessions();
    const beat = setInterval(() => void keepUp(stream, mayGoOn), BEAT_MS);
    stream.onClose(() => {
      clearInterval(beat);
      this.#sessions.delete(stream);
      feed.watchers.delete(watcher);
    });
    this.#catchUp(feed, watcher).catch((error: Error) => {
      this.#onError(error);
      stream.end();
    });
  }

  /** Ends all streams, and reads nothing more. Idempotent. */
  close(): void {
    this.#hasClosed = true;
    for (const { watchers } of this.#feeds.values()) for (const { stream } of watchers) stream.end();
  }

  /** Ends the streams of ended sessions, at the price of one question a second to Redis, however many are open. */
  async #watchSessions(): Promise<void> {
    const { operators } = this.#store;
    this.#isWatchingSessions = true;
    for (let last: string | undefined; this.#sessions.size > 0; ) {
      // Without Redis, the streams end anyway.
      const ended = await operators.sessionsEnded().catch(() => last);
      if (ended !== last) for (const [stream, mayGoOn] of this.#sessions) void keepUp(stream, mayGoOn);
      last = ended;
      await new Promise((resolve) => setTimeout(resolve, SESSIONS_MS));
    }
    this.#isWatchingSessions = false;
  }

  #open(runId: string, after: RunLogPosition | undefined): Feed {
    const feed: Feed = { runId, watchers: new Set(), position: after, state: '' };
    this.#feeds.set(runId, feed);
    void this.#poll(feed);
    return feed;
  }

  async #catchUp(feed: Feed, watcher: Watcher): Promise<void> {
    const { stream } = watcher;
    while (stream.isOpen && isBefore(watcher.position, feed.position)) {
      const entries = await this.#store.runLogs.readStored(feed.runId, watcher.position);
      // The feed may be at an entry that was removed since.
      if (entries.length === 0) break;
      this.#send([watcher], entries);
      await stream.drained();
    }
    watcher.isLive = true;
  }

  async #poll(feed: Feed): Promise<void> {
    const { runId, watchers } = feed;
    try {
      await this.#correctPosition(feed);
      do {
        const hasEnded = await this.#step(feed);
        if (hasEnded && [...watchers].every(({ isLive }) => isLive)) {
          const end = encodeEvent('end', {});
          for (const { stream } of watchers) {
            stream.send(end);
            stream.end();
          }
          break;
        }
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      } while (watchers.size > 0);
    } catch (error) {
      if (!this.#hasClosed) this.#onError(error as Error);
    } finally {
      // Who comes from now on opens another one.
      if (this.#feeds.get(runId) === feed) this.#feeds.delete(runId);
      for (const { stream } of watchers) stream.end();
    }
  }

  /** A position after the end of the log, which anybody can ask for, must not hide from others what is yet to come. */
  async #correctPosition(feed: Feed): Promise<void> {
    if (feed.position === undefined) return;
    const last = await this.#store.runLogs.lastPosition(feed.runId);
    if (isBefore(last, feed.position)) feed.position = last;
  }

  /** @returns whether the run has ended and its log was read to the end */
  async #step(feed: Feed): Promise<boolean> {
    // The progress is read first: the log of an ended run is complete. What is gone has ended, too.
    const progress = await this.#store.runs.progress(feed.runId);
    const state = progress?.state ?? 'gone';
    if (state !== feed.state) {
      const event = encodeEvent('state', { state });
      for (const { stream } of feed.watchers) stream.send(event);
      feed.state = state;
    }
    for (;;) {
      const entries = await this.#store.runLogs.readStored(feed.runId, feed.position);
      const last = entries.at(-1);
      if (!last) return progress?.hasEnded ?? true;
      feed.position = last.position;
      this.#send(
        [...feed.watchers].filter(({ isLive }) => isLive),
        entries,
      );
    }
  }

  /** Sends to each what it does not have yet; what is the same for several is encoded once. */
  #send(watchers: readonly Watcher[], entries: readonly StoredRunLogEntry[]): void {
    const encoded = new Map<number, Buffer>();
    for (const watcher of watchers) {
      const first = entries.findIndex(({ position }) => isBefore(watcher.position, position));
      if (first === -1) continue;
      const event = encoded.get(first) ?? encodeLog(entries.slice(first));
      encoded.set(first, event);
      watcher.stream.send(event);
      watcher.position = entries.at(-1)?.position;
    }
  }
}

/** Asks before each beat whether the reader may stay; a session that cannot be judged goes on at the next beat. */
async function keepUp(stream: EventStream, mayGoOn: () => Promise<boolean>): Promise<void> {
  const may = await mayGoOn().catch(() => true);
  if (may) stream.beat();
  else stream.end();
}

function encodeLog(entries: readonly StoredRunLogEntry[]): Buffer {
  const wire = entries.map(({ entry }): WireEntry => {
    const { time, attempt, source, offset, data } = entry;
    return [time.getTime(), attempt, source, offset, data.toString('base64')];
  });
  return encodeEvent('log', wire, entries.at(-1)?.position);
}

/** Positions are ids of a Redis stream: milliseconds and a number, both decimal. */
function isBefore(position: RunLogPosition | undefined, other: RunLogPosition | undefined): boolean {
  if (other === undefined) return false;
  if (position === undefined) return true;
  const [ms = 0, number = 0] = position.split('-').map(Number);
  const [otherMs = 0, otherNumber = 0] = other.split('-').map(Number);
  return ms < otherMs || (ms === otherMs && number < otherNumber);
}

/** What a browser may send as `Last-Event-ID`, or as the position to begin after. */
export const LOG_POSITION = /^\d{1,16}-\d{1,16}$/;
