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
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
