import { expect, test } from 'vitest';
import type { Run } from '../../src/core/run.ts';
import { newRunId } from '../../src/store/run-id.ts';
import type { Store } from '../../src/store/store.ts';
import { openTestStore } from '../support/store.ts';
import { Chance } from './chance.ts';
import { History } from './history.ts';
import { Observer } from './observer.ts';

const RUN: Run = {
  id: 'run_1',
  automation: 'work',
  status: 'succeeded',
  acceptedAt: new Date(0),
  endedAt: new Date(1),
  attempt: 1,
  maxAttempts: 1,
  requestId: 'test',
  payloadBytes: 2,
};

const store = openTestStore();

test.each([{ status: 'running' }, { status: 'failed' }, { endedAt: new Date(2) }] as const)(
  'an ended run that becomes %o is found, but not by a read that began earlier',
  (change) => {
    const history = new History();
    const observer = new Observer({} as Store, history, new Chance(1));
    const early = performance.now();
    observer.note(RUN, early);
    observer.note({ ...RUN, ...change }, early);
    expect(history.incidents).toEqual([]);
    observer.note({ ...RUN, ...change }, performance.now() + 1);
    expect(history.incidents.map(({ kind }) => kind)).toEqual(['ended run changed']);
  },
);

test('a run that is gone, as its 202 came after a restore had taken it away, is not waited for', async () => {
  const observer = new Observer(store, new History(), new Chance(1));
  const runId = newRunId();
  observer.follow(runId, 'work');
  expect(observer.openOf('work')).toBe(1);
  observer.start();
  await expect.poll(() => observer.openBefore(Number.POSITIVE_INFINITY)).toEqual([]);
  await observer.close();
});
