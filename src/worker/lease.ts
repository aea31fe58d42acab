/**
 * A worker holds a lock on each run it executes and renews it; a run whose lock has expired is given to another worker.
 * All figures are in milliseconds.
 */
export const LOCK_TIMING = {
  /** From the latest renewal until the lock expires. */
  lockMs: 30_000,
  /** Between two searches for expired locks; with `lockMs` it bounds how long a dead worker's run waits. */
  stalledCheckMs: 10_000,
  /** Between two renewals. */
  renewMs: 5000,
  /** From the latest renewal to the end of the {@link Lease}. */
  leaseMs: 20_000,
};
export type LockTiming = Readonly<typeof LOCK_TIMING>;

/** Pause between two checks for leases that are over, in milliseconds. */
export const LEASE_CHECK_MS = 250;

/**
 * How long a run is certainly this worker's. The lease is extended while Redis answers. It ends well before the lock, so
 * that the worker or its guard can end what the attempt has started before another worker executes the run.
 */
export interface Lease {
  /** By `Date.now()`. */
  endsAt: number;
}

export function isOver({ endsAt }: Lease): boolean {
  return Date.now() >= endsAt;
}

// The reasons of an attempt's signal.

/** The worker lost its claim to the run, which another worker may execute by now. */
export const LOCK_LOST = 'lock lost';
/** An operator has cancelled the run. */
export const CANCELLED = 'cancelled';
/** The worker shuts down and wants the run back in the queue. */
export const SHUTTING_DOWN = 'shutting down';
