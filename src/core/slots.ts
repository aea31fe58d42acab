/**
 * A worker has one slot for each run that it can execute at the same time (WORKER_CONCURRENCY). Operators are warned when
 * the same runs hold all slots of all workers for this long, in milliseconds, because no other run can start.
 */
export const SLOTS_HELD_MS = 60_000;

/**
 * Since when the same runs have held every slot.
 *
 * @param startedAt start of each executing run
 * @param slots number of slots of all workers; undefined when unknown
 * @returns undefined when a slot is or may be free
 */
export function slotsHeldSince(startedAt: readonly Date[], slots: number | undefined): Date | undefined {
  if (!slots || startedAt.length < slots) return undefined;
  return new Date(Math.max(...startedAt.map((time) => time.getTime())));
}
