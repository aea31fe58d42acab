import { defineConfig } from 'vitest/config';

/** `npm run test:unit`: what needs no process but Redis, and how the command line answers what it cannot read. */
export default defineConfig({
  test: {
    include: ['test/core/**', 'test/api/**', 'test/config', 'test/cli/{durations,help,output}'].map(
      (files) => `${files}.test.ts`,
    ),
    exclude: ['test/api/{connections,hang-ups,raw-http,rejections,shutdown,start-api}.test.ts'],
    globalSetup: 'test/support/global-setup.ts',
    reporters: ['default', './test/support/count-reporter.ts'],
    setupFiles: 'test/support/each-file.ts',
    pool: 'forks',
    // The files of one process share the modules that they import, as loading them takes longer than most tests.
    isolate: false,
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
