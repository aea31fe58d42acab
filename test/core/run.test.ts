import { describe, expect, test } from 'vitest';
import {
  isTerminal,
  outcomeLine,
  outcomeSummary,
  RUN_STATUSES,
  RUN_TRANSITIONS,
  type RunOutcome,
  type RunStatus,
} from '../../src/core/run.ts';

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

test.each<[outcome: Partial<RunOutcome>, line: string, summary: string]>([
  [{ exitCode: 3, detail: 'no table' }, 'It failed: no table', 'exit 3: no table'],
  [{ reason: 'signal', signal: 'SIGKILL', detail: 'loading' }, 'It failed: loading', 'SIGKILL: loading'],
  [{ reason: 'http_status', httpStatus: 500, detail: 'full' }, 'It failed: full', 'HTTP 500: full'],
  [{ reason: 'timeout', exitCode: 1, detail: 'asking' }, 'It failed: asking', 'timeout: asking'],
  [{ reason: 'worker_error', detail: 'x' }, 'It failed: x', 'worker_error: x'],
  [{ exitCode: 3 }, 'It failed.', 'It failed.'],
  [
    { reason: 'not_started', message: 'The command could not be started: x is missing.' },
    'The command could not be started: x is missing.',
    'x is missing.',
  ],
])(
  'the outcome %j is told in a line, and in a column with what says most first',
  (changes, line, summary) => {
    const outcome: RunOutcome = { status: 'failed', reason: 'exit_code', message: 'It failed.', ...changes };
    expect([outcomeLine(outcome), outcomeSummary(outcome)]).toEqual([line, summary]);
  },
);
