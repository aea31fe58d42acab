import { randomBytes } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';

let latestMs = 0;
let sequence = 0;

/** `run_` and a UUIDv7, so that ids sort by their time; those of one process in the order in which they were made. */
export function newRunId(): string {
  const random = randomBytes(16);
  const now = Date.now();
  // RFC 9562, section 6.2, method 1: a counter within the millisecond, which begins at random and below half its range.
  sequence = now > latestMs ? random.readUInt32BE() >>> 1 : sequence + 1;
  latestMs = Math.max(now, latestMs);
  return `run_${uuidv7({ random, msecs: latestMs, seq: sequence })}`;
}

/** When a run was accepted, which its id says in its first 48 bits (RFC 9562, section 5.7). */
export function acceptedAtOf(runId: string): Date {
  return new Date(Number.parseInt(runId.slice(4, 12) + runId.slice(13, 17), 16));
}
