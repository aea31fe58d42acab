import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Config } from '../config.ts';
import { withDeadline } from '../core/deadline.ts';
import { eventTime } from '../core/run-event.ts';
import type { Logger } from '../logger.ts';
import type {
  EventBatch,
  EventOutbox,
  EventTurn,
  FailingReceiver,
  WaitingEvent,
} from '../store/event-outbox.ts';
import { DeniedAddressError, receiverAddresses } from './actions/receiver-addresses.ts';
import { describeFailure, postSigned } from './actions/signed-post.ts';
import { retryPause } from './retry-pause.ts';

/** An event is tried again for this long after it happened, in milliseconds. */
export const EVENT_RETRY_MS = 86_400_000;

/** Pause between two looks for queues that are due, in milliseconds. */
const POLL_MS = 500;

/** How long a receiver may take to answer, in milliseconds. */
const ANSWER_MS = 10_000;

/** In one turn, no event is sent after this long, in milliseconds; then other queues have theirs. */
const TURN_MS = 5000;

/** How long a turn belongs to a worker, in milliseconds: longer than all that it may send takes. */
const LEASE_MS = TURN_MS + ANSWER_MS + 5000;

/**
 * Queues from which a worker sends at the same time. A receiver that does not answer holds one of them for ten seconds in
 * about ten minutes, so it takes thousands of them to hold up the others.
 */
const MAX_TURNS = 32;

/** Events of one queue that are sent at the same time. */
const PARALLEL = 8;

/** Events that are read together. */
const BATCH = 16;

/** Longest pause that a receiver may ask for with `Retry-After`, in milliseconds. */
const LONGEST_RETRY_AFTER_MS = 3_600_000;

/** Of an answer's body, this much is read so that its connection can be used again, in bytes, and for this long. */
const DRAIN_BYTES = 4096;
const DRAIN_MS = 1000;

const OUTDATED = 'It could not be delivered for 24 hours.';

const LOST = 'Redis has lost its body.';

/** What came of one try. */
type Try =
  | { status: 'delivered' }
  /** The receiver does not want it, now or later. */
  | { status: 'gone'; error: string }
  | { status: 'failed'; error: string; retryAfterMs: number }
  /** The worker shuts down, or Redis does not know of it. */
  | { status: 'interrupted' };

export interface EventSenderOptions {
  /** Its connection fails while Redis is away. */
  events: EventOutbox;
  config: Pick<Config, 'DELIVERY_DENY' | 'version'>;
  logger: Logger;
  onError(error: Error): void;
}

export interface EventSender {
  /** Looks for events at once. */
  wake(): void;
  /** Sends nothing more, waits up to `graceMs` milliseconds for answers, and returns the turns. Idempotent. */
  close(graceMs: number): Promise<void>;
}

/**
 * Sends events to the URLs of automations. A worker takes turns at the queues that are due; no other one sends from a queue
 * meanwhile. An event that is not delivered is tried again with growing pauses, and while nothing can be delivered to a URL,
 * one event at a time tries whether it is back.
 */
export function sendEvents({ events, config, logger, onError }: EventSenderOptions): EventSender {
  const addresses = receiverAddresses(config.DELIVERY_DENY);
  const closing = new AbortController();
  const turns = new Set<Promise<void>>();
  let isClosed = false;
  let looking: Promise<void> | undefined;
  let isWoken = false;

  const look = async (): Promise<void> => {
    do {
      isWoken = false;
      while (!isClosed && turns.size < MAX_TURNS) {
        const startedAt = Date.now();
        const turn = await events.take(randomUUID(), LEASE_MS);
        if (!turn) break;
        const sending = sendTurn(turn, startedAt)
          .catch(onError)
          .finally(() => {
            turns.delete(sending);
            wake();
          });
        turns.add(sending);
      }
    } while (isWoken && !isClosed);
  };
  const wake = () => {
    isWoken = true;
    if (isClosed) return;
    looking ??= look()
      // The connection reports that Redis is away; the next look comes soon.
      .catch(() => undefined)
      .finally(() => {
        looking = undefined;
      });
  };

  /** Sends what is due of one queue, within the limits of a turn. */
  const sendTurn = async (turn: EventTurn, startedAt: number): Promise<void> => {
    const progress = new Progress(turn.failing);
    const mustStop = () => isClosed || progress.isBlocked || Date.now() >= startedAt + TURN_MS;
    while (!mustStop()) {
      const batch = await events.read(turn, BATCH);
      if (batch.url === undefined) return events.clear(turn);
      if (batch.events.length === 0) break;
      const waiting = await withoutHopeless(turn, batch.events);
      const send = async (event: WaitingEvent) => progress.note(await sendEvent(batch, event, turn));
      while (waiting.length > 0 && !mustStop()) {
        await Promise.all(waiting.splice(0, progress.parallel).map(send));
      }
    }
    report(turn, progress);
    await events.release(turn, progress.failing, progress.pauseMs);
  };

  /** Gives up what is too old, and what cannot be sent: a receiver is never given an empty body. */
  const withoutHopeless = async (turn: EventTurn, found: readonly WaitingEvent[]) => {
    const hopeless = found.filter((event) => event.body === '' || isOutdated(event, turn));
    for (const event of hopeless) await drop(turn, event, event.tries, event.body === '' ? LOST : OUTDATED);
    return found.filter((event) => !hopeless.includes(event));
  };

  const report = ({ slug: automation, receiver, failing: before }: EventTurn, { failing }: Progress) => {
    if (!before && failing) {
      logger.warn({ automation, receiver, error: failing.lastError }, 'events cannot be delivered');
    }
    if (before && !failing) {
      logger.info({ automation, receiver }, 'events are delivered again');
    }
  };

  const sendEvent = async (batch: EventBatch, event: WaitingEvent, turn: EventTurn): Promise<Try> => {
    const result = await post(batch, event);
    try {
      await settle(turn, event, result);
      return result;
    } catch (error) {
      // Redis is away. What was sent will be sent again.
      onError(error as Error);
      return { status: 'interrupted' };
    }
  };

  const settle = async (turn: EventTurn, event: WaitingEvent, result: Try): Promise<void> => {
    if (result.status === 'interrupted') return;
    if (result.status === 'delivered') return events.delivered(turn, event);
    const tries = event.tries + 1;
    if (result.status === 'gone') return drop(turn, event, tries, result.error);
    const pauseMs = Math.max(retryPause(tries), result.retryAfterMs);
    if (Date.now() + pauseMs > endOf(event)) return drop(turn, event, tries, result.error);
    await events.retry(turn, event, pauseMs, result.error);
  };

  const drop = async (turn: EventTurn, event: WaitingEvent, tries: number, error: string) => {
    const { slug: automation, receiver } = turn;
    logger.warn({ automation, receiver, runId: event.runId, tries, error }, 'event dropped');
    await events.drop(turn, event, tries, error);
  };

  const post = async ({ url = '', signingSecrets }: EventBatch, event: WaitingEvent): Promise<Try> => {
    const timeout = AbortSignal.timeout(ANSWER_MS);
    const signal = AbortSignal.any([timeout, closing.signal]);
    const { version } = config;
    const message = { id: event.id, body: Buffer.from(event.body), secrets: signingSecrets };
    try {
      const response = await postSigned({ url, ...message, version, signal }, addresses);
      void drain(response);
      return judge(response);
    } catch (error) {
      if (closing.signal.aborted) return { status: 'interrupted' };
      return { status: 'failed', error: whyUnanswered(error, timeout.aborted), retryAfterMs: 0 };
    }
  };

  const polling = setInterval(wake, POLL_MS);
  let ending: Promise<void> | undefined;
  return {
    wake,
    close: (graceMs) => {
      ending ??= (async () => {
        isClosed = true;
        clearInterval(polling);
        const interrupt = setTimeout(() => closing.abort(), graceMs);
        await looking;
        await Promise.all(turns);
        clearTimeout(interrupt);
      })();
      return ending;
    },
  };
}

/** What has come of a turn so far. */
class Progress {
  readonly #before: FailingReceiver | undefined;
  #hasDelivered = false;
  #lastError: string | undefined;
  #isInterrupted = false;
  #retryAfterMs = 0;

  /** @param before how the URL was when the turn began */
  constructor(before: FailingReceiver | undefined) {
    this.#before = before;
  }

  note(result: Try): void {
    if (result.status === 'interrupted') this.#isInterrupted = true;
    else if (result.status === 'failed') {
      this.#lastError = result.error;
      this.#retryAfterMs = Math.max(this.#retryAfterMs, result.retryAfterMs);
      // A receiver that does not want an event is there.
    } else this.#hasDelivered = true;
  }

  /** Whether nothing more is sent in this turn. */
  get isBlocked(): boolean {
    return (
      this.#isInterrupted || this.#retryAfterMs > 0 || (this.#lastError !== undefined && !this.#hasDelivered)
    );
  }

  /** How many events are sent at the same time: a URL to which nothing could be delivered gets one first. */
  get parallel(): number {
    return this.#before && !this.#hasDelivered ? 1 : PARALLEL;
  }

  /** Whether nothing can be delivered to the URL, or it was told to wait. */
  get failing(): FailingReceiver | undefined {
    const lastError = this.#lastError;
    if (this.#hasDelivered && this.#retryAfterMs === 0) return undefined;
    const before = this.#hasDelivered ? undefined : this.#before;
    if (lastError === undefined) return before;
    return { turns: (before?.turns ?? 0) + 1, since: before?.since ?? new Date(), lastError };
  }

  /** How long nothing is sent to this URL, in milliseconds. */
  get pauseMs(): number {
    if (!this.failing || this.#lastError === undefined) return 0;
    return Math.max(retryPause(this.failing.turns), this.#retryAfterMs);
  }
}

/** When an event is given up, in milliseconds since the epoch. */
function endOf({ body }: WaitingEvent): number {
  return eventTime(body).getTime() + EVENT_RETRY_MS;
}

/** Whether an event is given up without another try: it is too old, and its receiver has had its chance. */
function isOutdated(event: WaitingEvent, { failing }: EventTurn): boolean {
  return Date.now() > endOf(event) && (event.tries > 0 || failing !== undefined);
}

/** 2xx is success; 410 says, by Standard Webhooks, that the receiver wants no more. */
function judge({ statusCode = 0, headers }: IncomingMessage): Try {
  if (statusCode >= 200 && statusCode < 300) return { status: 'delivered' };
  const error = `The receiver answered ${statusCode}.`;
  if (statusCode === 410) return { status: 'gone', error };
  return { status: 'failed', error, retryAfterMs: retryAfterMsIn(headers['retry-after']) };
}

/** RFC 9110, section 10.2.3: seconds, or a date. @returns milliseconds from now on, within bounds */
function retryAfterMsIn(text = ''): number {
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(ms, 0), LONGEST_RETRY_AFTER_MS);
}

function whyUnanswered(error: unknown, isTimedOut: boolean): string {
  if (isTimedOut) return `No answer came within ${ANSWER_MS / 1000} s.`;
  if (error instanceof DeniedAddressError) return `Nothing was sent: ${error.message}.`;
  return `The request failed: ${describeFailure(error)}.`;
}

/** Reads a short answer to its end, which frees its connection for the next request; a longer one ends with its connection. */
async function drain(response: IncomingMessage): Promise<void> {
  let left = DRAIN_BYTES;
  const closed = new Promise<void>((resolve) => {
    response.on('error', () => undefined);
    response.once('close', resolve);
  });
  response.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    if (left < 0) response.destroy();
  });
  await withDeadline(closed, DRAIN_MS).catch(() => response.destroy());
}
