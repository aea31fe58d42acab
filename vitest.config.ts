import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/chaos/{retention,shutdown,stalled}.test.ts', 'test/{bench,clients,topologies}/**'],
    globalSetup: 'test/support/global-setup.ts',
    reporters: ['default', './test/support/count-reporter.ts'],
    setupFiles: 'test/support/each-file.ts',
    pool: 'forks',
    // The files of one process share the modules that they import, as loading them takes longer than most tests.
    isolate: false,
    // The tests start servers, workers and Redis themselves, so more files at once only makes them wait.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
