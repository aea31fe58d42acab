/** The deadline has passed. The work may still complete. */
export class DeadlineError extends Error {
  override name = 'DeadlineError';
}

/**
 * Waits for a promise for at most `ms` milliseconds.
 *
 * @throws DeadlineError after that; the promise's result is then ignored
 */
export function withDeadline<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new DeadlineError(`not done within ${ms} ms`)), Math.max(ms, 0));
    void promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
