import { defineConfig } from 'vitest/config';

/** Runs the script timing.ts, with the test run's Redis and processes, and shows what it prints. */
export default defineConfig({
  test: {
    include: ['test/timing.ts'],
    globalSetup: 'test/support/global-setup.ts',
    pool: 'forks',
    testTimeout: 1_800_000,
    hookTimeout: 60_000,
    disableConsoleIntercept: true,
  },
});
