import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [
      'test/chaos/{retention,shutdown,stalled}.test.ts',
      'test/{bench,clients,screenshots,topologies}/**',
    ],
    globalSetup: 'test/support/global-setup.ts',
    reporters: ['default', './test/support/count-reporter.ts'],
    setupFiles: 'test/support/each-file.ts',
    pool: 'forks',
    // The files of one process share the modules that they import, as loading them takes longer than most tests.
    isolate: false,
    // Half of the time of a file is waiting: for timers, outages and the ends of processes. Five keep two cores busy.
    maxWorkers: 5,
    // For a busy machine: nothing here takes so long on one that is not.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
