import { withDeadline } from '../core/deadline.ts';
import { untilReady } from '../store/connect.ts';
import type { Store } from '../store/store.ts';

/** How often Redis is asked, in milliseconds. With the deadline it bounds how old the truth can be: 1.5 s. */
const SAMPLE_INTERVAL_MS = 500;
const SAMPLE_DEADLINE_MS = 1000;

/** A connection on which nothing came back for this long, in milliseconds, is given up and made anew. */
const SILENT_CONNECTION_MS = 5000;

/**
 * - `ok`: triggers are accepted and executed.
 * - `degraded`: triggers are accepted, but no worker is alive to execute them.
 * - `unavailable`: Redis takes no writes, so that nothing can be accepted.
 */
export type HealthStatus = 'ok' | 'degraded' | 'unavailable';

export interface HealthSample {
  status: HealthStatus;
  /** In the form of RFC 3339. */
  checkedAt: string;
  workersAlive: number;
}

/**
 * Knows whether runs can be accepted, by asking Redis at intervals. Requests read the latest sample, so that no flood
 * of health checks reaches Redis and no trigger waits for a Redis that is known to be away.
 */
export class HealthMonitor {
  readonly #store: Store;
  readonly #onChange: (from: HealthStatus, sample: HealthSample, cause: unknown) => void;
  #latest: HealthSample = { status: 'unavailable', checkedAt: new Date().toISOString(), workersAlive: 0 };
  #probing: { promise: Promise<HealthSample>; since: number } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #started = false;
  #closed = false;

  constructor(store: Store, onChange: (from: HealthStatus, sample: HealthSample, cause: unknown) => void) {
    this.#store = store;
    this.#onChange = onChange;
  }

  get latest(): HealthSample {
    return this.#latest;
  }

  /** Takes the first sample, as soon as Redis is connected or its deadline is over, and goes on from there. */
  async start(): Promise<void> {
    await untilReady(this.#store.redis, SAMPLE_DEADLINE_MS);
    await this.#continue();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #continue(): Promise<void> {
    await this.#sample();
    if (!this.#closed) this.#timer = setTimeout(() => void this.#continue(), SAMPLE_INTERVAL_MS);
  }

  async #sample(): Promise<void> {
    const previous = this.#latest.status;
    let cause: unknown;
    try {
      this.#latest = await withDeadline(this.#probe(), SAMPLE_DEADLINE_MS);
    } catch (error) {
      cause = error;
      this.#latest = { ...this.#latest, status: 'unavailable', checkedAt: new Date().toISOString() };
    }
    // The first sample changes nothing that was known before.
    if (this.#latest.status !== previous && this.#started && !this.#closed) {
      this.#onChange(previous, this.#latest, cause);
    }
    this.#started = true;
  }

  /** One question at a time: a Redis that hangs is not sent more and more of them. */
  #probe(): Promise<HealthSample> {
    if (this.#probing) {
      if (Date.now() - this.#probing.since > SILENT_CONNECTION_MS) {
        this.#probing.since = Date.now();
        this.#store.redis.disconnect(true);
      }
      return this.#probing.promise;
    }
    const promise = this.#ask().finally(() => {
      this.#probing = undefined;
    });
    this.#probing = { promise, since: Date.now() };
    return promise;
  }

  async #ask(): Promise<HealthSample> {
    const { workersAlive } = await this.#store.workers.probe();
    return {
      status: workersAlive > 0 ? 'ok' : 'degraded',
      checkedAt: new Date().toISOString(),
      workersAlive,
    };
  }
}
