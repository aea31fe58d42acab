import { afterAll, onTestFinished } from 'vitest';

/** Has something done after the test or, called while a file is loaded, after all tests of the file; what came last goes first. */
export function atEnd(close: () => unknown): void {
  const end = async () => {
    await close();
  };
  try {
    onTestFinished(end);
  } catch {
    // It throws outside of a test.
    afterAll(end);
  }
}
