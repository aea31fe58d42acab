import { beforeAll, expect, test } from 'vitest';
import { shutDownUnderLoad } from '../support/shutdown.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const store = openTestStore();
let key = '';
beforeAll(async () => {
  key = await createAutomation(store, 'load');
});

// Fifty rounds are in test/chaos.
test.each([1, 2, 3])('SIGTERM under load cuts no connection in use and loses no run (round %i)', async () => {
  const { answers } = await shutDownUnderLoad(store, 'load', key);
  expect(answers).toBeGreaterThan(0);
});
