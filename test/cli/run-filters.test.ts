import { expect, test } from 'vitest';
import { OrcCommand } from '../../src/cli/orc-command.ts';
import { addRunFilters, type RunFilterOptions, runFilterOf } from '../../src/cli/run-filters.ts';
import { InputError } from '../../src/core/input-error.ts';

const NOW = Date.parse('2026-01-31T12:00Z');

function filterOf(...args: string[]) {
  const command = addRunFilters(new OrcCommand());
  return runFilterOf(command.parse(args, { from: 'user' }).opts<RunFilterOptions>(), NOW);
}

test('several statuses are joined by commas, or the option is repeated', () => {
  expect(filterOf('--status', 'failed,timed_out', '--status', 'queued').statuses).toEqual([
    'failed',
    'timed_out',
    'queued',
  ]);
  expect(filterOf().statuses).toBeUndefined();
});

test('a period is between two times', () => {
  const period = filterOf('--since', '2h', '--until', '2026-01-31T11:00Z');
  expect(period).toMatchObject({ since: new Date(NOW - 7_200_000), until: new Date(NOW - 3_600_000) });
});

test.each([
  [['--status', 'failed,done'], "'done' is not a status. Use one of: queued"],
  [['--failed', '--status', 'queued'], '--failed means failed and timed_out'],
  [['--since', '1h', '--until', '2h'], '--since must be earlier than --until'],
  [['--since', 'noon'], "'noon' is not a time"],
])('%j is a usage error', (args, sentence) => {
  expect(() => filterOf(...args)).toThrow(InputError);
  expect(() => filterOf(...args)).toThrow(sentence);
});
