import { defineConfig } from 'vitest/config';

/** `npm run test:topologies`: Sentinel, Cluster, TLS, logins and Valkey, on real servers that the tests start. */
export default defineConfig({
  test: {
    include: ['test/topologies/**/*.test.ts'],
    reporters: ['default', './test/support/count-reporter.ts'],
    setupFiles: 'test/support/each-file.ts',
    pool: 'forks',
    // A failover is measured: nothing else runs meanwhile.
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 60_000,
    disableConsoleIntercept: true,
  },
});
