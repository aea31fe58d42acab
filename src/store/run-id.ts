import { randomUUID } from 'node:crypto';

/** Of the counter, which takes the 12 bits of `rand_a`. */
const COUNTER_MAX = 0xfff;

let latestMs = 0;
let counter = 0;

/** `run_` and a UUIDv7, so that ids sort by their time; those of one process in the order in which they were made. */
export function newRunId(): string {
  // RFC 9562, section 6.2, method 1: a counter within the millisecond, which may run ahead of the clock.
  counter = counter === COUNTER_MAX ? 0 : counter + 1;
  const earliestMs = counter === 0 ? latestMs + 1 : latestMs;
  const now = Date.now();
  if (now > earliestMs) counter = 0;
  latestMs = Math.max(now, earliestMs);
  const time = latestMs.toString(16).padStart(12, '0');
  const sequence = counter.toString(16).padStart(3, '0');
  // Its variant and its last 62 bits are those of any UUID, and Node has random ones in store.
  return `run_${time.slice(0, 8)}-${time.slice(8)}-7${sequence}-${randomUUID().slice(19)}`;
}

/** When a run was accepted, which its id says in its first 48 bits (RFC 9562, section 5.7). */
export function acceptedAtOf(runId: string): Date {
  return new Date(Number.parseInt(runId.slice(4, 12) + runId.slice(13, 17), 16));
}

/** What the ids of runs accepted at a time begin with: it sorts before all of them, and after those accepted earlier. */
export function firstIdAt(time: Date): string {
  const hex = Math.max(0, time.getTime()).toString(16).padStart(12, '0');
  return `run_${hex.slice(0, 8)}-${hex.slice(8)}`;
}
