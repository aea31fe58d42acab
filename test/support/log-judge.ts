/** Lines that say the same, of requests without a right key, that an app may write within a second. */
const LINES_PER_WINDOW = 100;

/** The app's seconds need not begin when those of the clock do. */
const WINDOWS_PER_SECOND = 2;

/**
 * Holds the log of a process against what is promised of it: strangers can neither make it grow without bounds, nor make it
 * tell of failures of the service.
 */
export class LogJudge {
  readonly #most: number;
  #second = '';
  /** Lines of this second that need no right key, by what they say. */
  readonly #counts = new Map<string, number>();
  /** The first thing that is wrong with it. */
  problem: string | undefined;

  /** @param apps that write into the log */
  constructor(apps: number) {
    this.#most = LINES_PER_WINDOW * WINDOWS_PER_SECOND * apps;
  }

  take(record: Record<string, unknown>): void {
    const { time, level, msg, statusCode, error, automation, hungUp } = record;
    const isUntoldFailure = hungUp === true && Number(statusCode) >= 500;
    if (msg === 'request failed' || statusCode === 500 || isUntoldFailure) {
      this.problem ??= `the log has ${JSON.stringify(record)}`;
    }
    if (automation !== undefined) return;
    const second = String(time).slice(0, 19);
    if (second !== this.#second) this.#counts.clear();
    this.#second = second;
    const kind = [level, msg, statusCode, error].join(' ');
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    if (count > this.#most) this.problem ??= `the log has more than ${this.#most} lines in a second: ${kind}`;
  }
}
