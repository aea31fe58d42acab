import { afterAll, expect } from 'vitest';
import { endLeftProcesses } from './orc-process.ts';

// A process that a test left running is a failure of that test's file. vitest runs this for every file; the modules that the
// files share are loaded only once.
afterAll(() => {
  expect(endLeftProcesses()).toEqual([]);
});
