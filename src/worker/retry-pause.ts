/** Pause before the second attempt, in milliseconds; it doubles with every further one, up to the longest. */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 600_000;

/** Pauses are shortened by up to this share, so that runs that failed together are not repeated together. */
const JITTER = 0.2;

/** @returns milliseconds from the end of a failed attempt to the next one */
export function retryPause(attemptsMade: number): number {
  const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (attemptsMade - 1), LONGEST_PAUSE_MS);
  return Math.round(pauseMs * (1 - JITTER * Math.random()));
}
