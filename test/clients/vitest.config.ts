import { createRequire } from 'node:module';
import { defineConfig } from 'vitest/config';

/** `npm run test:clients`: real browsers, monitors, bridges and generated clients, fetched where they are missing. */
export default defineConfig({
  test: {
    include: ['test/clients/**/*.test.ts'],
    globalSetup: 'test/support/global-setup.ts',
    reporters: ['default', './test/support/count-reporter.ts'],
    setupFiles: 'test/support/each-file.ts',
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // openapi-typescript prints with the TypeScript compiler's interface, which TypeScript 7 has none of; this is one of 5.
    alias: { typescript: createRequire(import.meta.url).resolve('@ts-morph/common/dist/typescript.js') },
    server: { deps: { inline: ['openapi-typescript'] } },
  },
});
