/** So many lines that say the same are written within so many milliseconds; the rest are counted. */
const LINES_PER_WINDOW = 100;
const WINDOW_MS = 1000;

/**
 * Limits the lines of a log about what anybody can send: a flood would fill the disk with 25,000 lines a second.
 *
 * @typeParam Kind what lines that say the same have in common; there must be few of them
 */
export class LineLimit<Kind extends object> {
  readonly #sumUp: (kind: Kind, count: number) => void;
  /** Lines of this window. */
  readonly #kinds = new Map<string, { kind: Kind; count: number }>();
  #timer: NodeJS.Timeout | undefined;

  /** @param sumUp is told, after each window, how many lines of a kind were not written */
  constructor(sumUp: (kind: Kind, count: number) => void) {
    this.#sumUp = sumUp;
  }

  /** Whether one more line is written; otherwise it is counted. */
  admits(kind: Kind): boolean {
    const key = Object.values(kind).join();
    const known = this.#kinds.get(key) ?? { kind, count: 0 };
    known.count += 1;
    this.#kinds.set(key, known);
    this.#timer ??= setTimeout(() => this.#end(), WINDOW_MS).unref();
    return known.count <= LINES_PER_WINDOW;
  }

  /** Says what was only counted so far. */
  close(): void {
    clearTimeout(this.#timer);
    this.#end();
  }

  #end(): void {
    this.#timer = undefined;
    for (const { kind, count: all } of this.#kinds.values()) {
      const count = all - LINES_PER_WINDOW;
      if (count > 0) this.#sumUp(kind, count);
    }
    this.#kinds.clear();
  }
}
