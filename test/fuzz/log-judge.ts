/** Lines that say the same, of requests without a right key, that one app may write in a second. */
const LINES_PER_SECOND = 100;

/** Windows need not begin when the time that is judged does. */
const MORE_WINDOWS = 2;

/** Holds the log against what is promised of it: strangers cannot make it grow without bounds, nor make it tell of failures. */
export class LogJudge {
  readonly #apps: number;
  /** Lines that need no right key, by what they say. */
  readonly #counts = new Map<string, number>();
  #problem: string | undefined;
  lines = 0;
  bytes = 0;

  /** @param apps that write into the log */
  constructor(apps: number) {
    this.#apps = apps;
  }

  take(line: string): void {
    this.lines += 1;
    this.bytes += Buffer.byteLength(line);
    if (!line.startsWith('{')) {
      this.#problem ??= `what is no line of a log: ${line}`;
      return;
    }
    const { level, msg, statusCode, error, automation, hungUp } = JSON.parse(line) as Record<string, unknown>;
    const isUntoldFailure = hungUp === true && Number(statusCode) >= 500;
    if (level === 'error' || level === 'fatal' || isUntoldFailure) this.#problem ??= `the log has ${line}`;
    if (automation !== undefined) return;
    const kind = [level, msg, statusCode, error].join(' ');
    this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + 1);
  }

  /** @returns what is wrong with the log of so many seconds */
  problem(seconds: number): string | undefined {
    if (this.#problem !== undefined) return this.#problem;
    const most = LINES_PER_SECOND * this.#apps * (Math.ceil(seconds) + MORE_WINDOWS);
    const [kind, count] = [...this.#counts].find(([, lines]) => lines > most) ?? [];
    return kind === undefined
      ? undefined
      : `the log has ${count} lines ${kind}, ${most} at most were promised`;
  }
}
