/**
 * A worker has as many slots as it executes runs at the same time. Where the same runs hold all slots of all workers for
 * this long, in milliseconds, operators are told: no other run starts meanwhile.
 */
export const SLOTS_HELD_MS = 60_000;

/**
 * Since when the same runs have held every slot.
 *
 * @param startedAt of each run that executes
 * @param slots of all workers together; undefined when that is not known
 * @returns undefined when a slot is free, or may be
 */
export function slotsHeldSince(startedAt: readonly Date[], slots: number | undefined): Date | undefined {
  if (!slots || startedAt.length < slots) return undefined;
  return new Date(Math.max(...startedAt.map((time) => time.getTime())));
}
