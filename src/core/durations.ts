import type { RateLimit } from './automation.ts';
import { InputError } from './input-error.ts';

const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
type Unit = keyof typeof UNITS_MS;

/**
 * Reads a duration such as `90s`, `10m` or `24h`; `0` needs no unit.
 *
 * @returns milliseconds
 * @throws InputError
 */
export function parseDuration(text: string): number {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text) ?? [];
  if (text === '0') return 0;
  if (amount === undefined || unit === undefined) {
    throw new InputError(
      `'${text}' is not a duration. Write a number with a unit: 500ms, 90s, 10m, 24h, 7d.`,
    );
  }
  return Math.round(Number(amount) * UNITS_MS[unit as Unit]);
}

/** ISO 8601: a date, and perhaps a time, with or without an offset from UTC. */
const DATE = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$/;

/**
 * Reads a time: a duration before now, such as `1h`, or a date and time in ISO 8601, which is local without an offset.
 *
 * @param now milliseconds since the epoch
 * @throws InputError
 */
export function parseTime(text: string, now: number): Date {
  if (/^\d+(\.\d+)?(ms|s|m|h|d)$/.test(text)) return new Date(now - parseDuration(text));
  // JavaScript takes a date without a time as UTC.
  const time = DATE.test(text) ? new Date(text.includes('T') ? text : `${text}T00:00`) : undefined;
  if (time && !Number.isNaN(time.getTime())) return time;
  throw new InputError(
    `'${text}' is not a time. Write how long ago it was, such as 30m, 1h or 2d, or a date: 2026-01-31T18:00, 2026-01-31T18:00Z.`,
  );
}

/**
 * Reads a rate such as `60/m`: a number per second, minute, hour or day.
 *
 * @throws InputError
 */
export function parseRate(text: string): RateLimit {
  const [, limit, unit] = /^([1-9]\d*)\/(s|m|h|d)$/.exec(text) ?? [];
  if (limit === undefined || unit === undefined) {
    throw new InputError(`'${text}' is not a rate. Write a number per s, m, h or d: 5/s, 60/m, 1000/d.`);
  }
  return { limit: Number(limit), windowMs: UNITS_MS[unit as Unit] };
}

/** A duration for people: `45 ms`, `1.2 s`, `3 min 5 s`, `2 h 4 min`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A duration in the form of the command line, in the largest unit that makes it a whole number. */
export function writeDuration(ms: number): string {
  const units = Object.entries(UNITS_MS).reverse();
  const [unit, unitMs] = units.find(([, each]) => ms % each === 0) ?? ['ms', 1];
  return `${ms / unitMs}${unit}`;
}

/** A rate in the form of the command line. */
export function formatRate({ limit, windowMs }: RateLimit): string {
  const unit = Object.entries(UNITS_MS).find(([, ms]) => ms === windowMs)?.[0];
  return `${limit}/${unit ?? `${windowMs}ms`}`;
}
