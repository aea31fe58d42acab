import { isSlug } from '../core/automation.ts';
import { withDeadline } from '../core/deadline.ts';
import type { ErrorId } from '../core/errors.ts';
import type { RejectionCount } from '../store/rejections.ts';
import type { Store } from '../store/store.ts';

/** What was counted is stored this often, in milliseconds. */
const STORE_MS = 1000;

/** Slugs without a key that matches them, which may be invented, are counted up to so many at a time. */
const MAX_UNPROVEN_SLUGS = 1000;

type Counts = Map<string, Map<ErrorId, RejectionCount>>;

/**
 * Counts the requests refused for each slug in memory, and stores the counts about once a second. Whether a slug exists
 * makes no difference here. What is counted and not stored yet is lost in a crash, and when Redis fails at that moment.
 */
export class RejectionTally {
  readonly #store: Store;
  /** Of slugs that a key has proved to exist, so that invented ones cannot crowd them out. */
  #proven: Counts = new Map();
  #unproven: Counts = new Map();
  #timer: NodeJS.Timeout | undefined;

  constructor(store: Store) {
    this.#store = store;
  }

  /** @param isProven whether the request had the slug's key */
  count(slug: string, error: ErrorId, isProven: boolean): void {
    if (!isSlug(slug)) return;
    const counts = isProven ? this.#proven : this.#unproven;
    let errors = counts.get(slug);
    if (!errors) {
      if (!isProven && counts.size >= MAX_UNPROVEN_SLUGS) return;
      errors = new Map();
      counts.set(slug, errors);
    }
    const known = errors.get(error);
    if (known) {
      known.count += 1;
      known.lastAt = Date.now();
    } else errors.set(error, { count: 1, lastAt: Date.now() });
    this.#timer ??= setTimeout(() => void this.#tick(), STORE_MS).unref();
  }

  /** Stores what is left. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#save();
  }

  async #tick(): Promise<void> {
    this.#timer = undefined;
    await this.#save();
  }

  async #save(): Promise<void> {
    // While Redis is away it is kept; the next one counted asks again.
    if (this.#store.redis.status !== 'ready') return;
    const batches = [this.#proven, this.#unproven].filter(({ size }) => size > 0);
    this.#proven = new Map();
    this.#unproven = new Map();
    for (const batch of batches) {
      await withDeadline(this.#store.rejections.add(batch), STORE_MS).catch(() => undefined);
    }
  }
}
