import { Option } from 'commander';
import { parseTime } from '../core/durations.ts';
import { isFailure, RUN_STATUSES, type RunStatus } from '../core/run.ts';
import type { RunFilter } from '../store/runs.ts';
import type { OrcCommand } from './orc-command.ts';
import { UsageError } from './output.ts';

/** The values of the options that {@link addRunFilters} adds. */
export interface RunFilterOptions {
  automation?: string;
  status?: string[];
  failed?: boolean;
  since?: string;
  until?: string;
}

export const RUN_FILTERS_HELP = `--since and --until take a time before now, such as 1h or 2d, or a date and time, such as 2026-01-31T18:00 (local time,
unless it ends in Z or an offset). They compare when a run was accepted; with --failed, when it ended.`;

/**
 * Adds the options that choose runs. A command that has them shows {@link RUN_FILTERS_HELP}.
 *
 * @param statuses of the runs that the command takes
 */
export function addRunFilters(
  command: OrcCommand,
  statuses: readonly RunStatus[] = RUN_STATUSES,
): OrcCommand {
  const failed = new Option('--failed', 'only runs that failed or timed out, the latest end first');
  return command
    .option('--automation <slug>', 'only runs of this automation')
    .option(
      '--status <statuses>',
      `only runs with one of these statuses, joined by commas: ${statuses.join(', ')}`,
      (text: string, before: string[] = []) => [...before, ...text.split(',')],
    )
    .addOption(failed.hideHelp(!statuses.includes('failed')))
    .option('--since <time>', 'only runs from this time on')
    .option('--until <time>', 'only runs before this time');
}

/**
 * What the options ask for.
 *
 * @param now milliseconds since the epoch
 * @throws UsageError
 */
export function runFilterOf(options: RunFilterOptions, now = Date.now()): Omit<RunFilter, 'limit'> {
  const { automation, failed = false } = options;
  const statuses = options.status?.map(statusOf);
  if (failed && statuses?.some((status) => !isFailure(status))) {
    throw new UsageError(
      '--failed means failed and timed_out. Use it without --status, or --status without it.',
    );
  }
  const since = options.since === undefined ? undefined : parseTime(options.since, now);
  const until = options.until === undefined ? undefined : parseTime(options.until, now);
  if (since && until && since >= until) throw new UsageError('--since must be earlier than --until.');
  return { automation, statuses, failed, since, until };
}

function statusOf(text: string): RunStatus {
  const status = RUN_STATUSES.find((each) => each === text);
  if (status === undefined) {
    throw new UsageError(`'${text}' is not a status. Use one of: ${RUN_STATUSES.join(', ')}.`);
  }
  return status;
}
