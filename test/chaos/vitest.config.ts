import { defineConfig } from 'vitest/config';

/** `npm run test:chaos`: what takes minutes, or would disturb other tests. One file at a time. */
export default defineConfig({
  test: {
    include: ['test/chaos/{retention,shutdown,stalled}.test.ts'],
    globalSetup: 'test/support/global-setup.ts',
    reporters: ['default', './test/support/count-reporter.ts'],
    setupFiles: 'test/support/each-file.ts',
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 900_000,
    hookTimeout: 60_000,
    disableConsoleIntercept: true,
  },
});
