import { defineConfig } from 'vitest/config';

/** `npm run screenshots`: writes pictures of the console's pages into docs/images. */
export default defineConfig({
  test: {
    include: ['test/screenshots/**/*.test.ts'],
    globalSetup: 'test/support/global-setup.ts',
    setupFiles: 'test/support/each-file.ts',
    pool: 'forks',
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
