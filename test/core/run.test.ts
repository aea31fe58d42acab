import { describe, expect, test } from 'vitest';
import { isTerminal, RUN_STATUSES, RUN_TRANSITIONS, type RunStatus } from '../../src/core/run.ts';

const TERMINAL = ['succeeded', 'failed', 'timed_out', 'cancelled'];

/** Every status that a run with this status can have later. */
function reachableFrom(status: RunStatus): Set<RunStatus> {
  const reached = new Set<RunStatus>();
  const visit = (from: RunStatus) => {
    for (const to of RUN_TRANSITIONS[from]) {
      if (reached.has(to)) continue;
      reached.add(to);
      visit(to);
    }
  };
  visit(status);
  return reached;
}

test('the terminal statuses are those without a way out', () => {
  expect(RUN_STATUSES.filter(isTerminal)).toEqual(TERMINAL);
  for (const status of RUN_STATUSES) expect(isTerminal(status)).toBe(RUN_TRANSITIONS[status].length === 0);
});

describe('transitions', () => {
  test('lead from queued to every other status', () => {
    expect([...reachableFrom('queued')].sort()).toEqual([...RUN_STATUSES].sort());
  });

  test.each(RUN_STATUSES.filter((status) => !isTerminal(status)))('lead from %s to every end', (status) => {
    expect([...reachableFrom(status)]).toEqual(expect.arrayContaining(TERMINAL));
  });

  test.each(RUN_STATUSES)('lead from %s to no status twice, and not to itself', (status) => {
    const targets = RUN_TRANSITIONS[status];
    expect(new Set(targets).size).toBe(targets.length);
    expect(targets).not.toContain(status);
  });

  test.each(['retrying', 'succeeded', 'timed_out'] as const)(
    'lead to %s only from a run that executes',
    (status) => {
      expect(RUN_STATUSES.filter((from) => RUN_TRANSITIONS[from].includes(status))).toEqual(['running']);
    },
  );
});
