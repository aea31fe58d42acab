import type { RedisServer } from '../../src/local/find-redis-server.ts';

/** What every part is given. */
export interface BenchContext {
  redisServer: RedisServer;
  /** A directory of the run's own, removed at its end. */
  directory: string;
  /** How often each contestant of a comparison has its turn; they take turns, A B A B. */
  rounds: number;
  /** How long one turn is measured, in seconds. */
  seconds: number;
  /** Whether to go up to a million of what parts have 100,000 of otherwise: minutes more, and some 10 GB of memory. */
  million: boolean;
  /** The arrival rates of *open*, in requests a second. */
  rates: readonly number[];
  /** One line for people about what goes on, on standard error. */
  progress(message: string): void;
  /** Has something undone at the end of the part, the latest first, whatever happened. */
  defer(undo: () => unknown): void;
}

/** A figure as it was measured: one value per round. */
export interface Figure {
  /** What was measured, unit included: `runs/s`, `p99 ms`, `CPU µs per run`. */
  unit: string;
  values: number[];
  /** It says how the rest was measured, and is not compared with the reference's. */
  isContext?: boolean;
}

/** A contestant under one set of conditions. */
export interface Row {
  name: string;
  figures: Figure[];
}

/** A comparison: every row under the same conditions in the same minutes. */
export interface Table {
  title: string;
  rows: Row[];
  /** The row that the others are shown as shares of. */
  reference?: string;
  /** What a reader has to know: what was skipped and why, what a figure includes. */
  remarks?: string[];
}

/** The unit of the figure that says how busy the machine was with anything but the measurement. */
export const OTHER_CORES = 'other cores';

export interface Part {
  name: string;
  /** For `--help`. */
  summary: string;
  run(context: BenchContext): Promise<Table[]>;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const [low = Number.NaN, high = Number.NaN] = [sorted[Math.ceil(middle) - 1], sorted[Math.floor(middle)]];
  return (low + high) / 2;
}
