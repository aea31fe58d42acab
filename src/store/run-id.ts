import { randomFillSync } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';

/** Random bytes are fetched for many ids at once: a call to the system costs more than the rest of an id. */
const RANDOM_LENGTH = 16;
const pool = Buffer.alloc(RANDOM_LENGTH * 256);
let used = pool.length;

let latestMs = 0;
let sequence = 0;

/** `run_` and a UUIDv7, so that ids sort by their time; those of one process in the order in which they were made. */
export function newRunId(): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const random = pool.subarray(used, used + RANDOM_LENGTH);
  used += RANDOM_LENGTH;
  const now = Date.now();
  // RFC 9562, section 6.2, method 1: a counter within the millisecond, which begins at random and below half its range.
  sequence = now > latestMs ? random.readUInt32BE() >>> 1 : sequence + 1;
  latestMs = Math.max(now, latestMs);
  return `run_${uuidv7({ random, msecs: latestMs, seq: sequence })}`;
}

/** Precedes every id of that millisecond, and follows those before. */
export function startOfMs(ms: number): string {
  const digits = ms.toString(16).padStart(12, '0');
  return `run_${digits.slice(0, 8)}-${digits.slice(8)}`;
}

/** When a run was accepted, which its id says in its first 48 bits (RFC 9562, section 5.7). */
export function acceptedAtOf(runId: string): Date {
  return new Date(Number.parseInt(runId.slice(4, 12) + runId.slice(13, 17), 16));
}
