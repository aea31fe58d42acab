import { expect, test } from 'vitest';
import { DeadlineError, withDeadline } from '../../src/core/deadline.ts';

const FAR_MS = 60_000;
const never = new Promise<never>(() => {});

test('what is done before the deadline is passed on', async () => {
  await expect(withDeadline(Promise.resolve('done'), FAR_MS)).resolves.toBe('done');
});

test('what fails before the deadline fails with its own error', async () => {
  const error = new Error('refused');
  await expect(withDeadline(Promise.reject(error), FAR_MS)).rejects.toBe(error);
});

test.each([1, 0, -1])('what is not done within %i ms fails with a DeadlineError', async (ms) => {
  await expect(withDeadline(never, ms)).rejects.toThrow(DeadlineError);
});

test('what is done already counts even when there is no time left', async () => {
  await expect(withDeadline(Promise.resolve('done'), -1)).resolves.toBe('done');
});

test('a failure after the deadline disturbs nobody', async () => {
  let fail = (_: Error) => {};
  const late = new Promise((_, reject) => {
    fail = reject;
  });
  await expect(withDeadline(late, 0)).rejects.toThrow(DeadlineError);
  fail(new Error('too late'));
  // An unhandled rejection is noticed when the event loop turns, and fails the test run.
  await new Promise(setImmediate);
});
