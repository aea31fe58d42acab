/** The time for something was over before it was done; it may still get done. */
export class DeadlineError extends Error {
  override name = 'DeadlineError';
}

/**
 * Waits for a promise, but not for longer than `ms` milliseconds.
 *
 * @throws DeadlineError when the time is over; what the promise does later is ignored
 */
export function withDeadline<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new DeadlineError(`not done within ${ms} ms`)), Math.max(ms, 0));
    promise.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
