import { actorName, describeAction, describeDetails } from '../core/audit.ts';
import { parseTime } from '../core/durations.ts';
import { type CommandContext, withStore } from './context.ts';
import { OrcCommand } from './orc-command.ts';
import { UsageError } from './output.ts';

const DEFAULT_LIMIT = '50';

/** `orc audit`: who changed what. */
export function auditCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  return new OrcCommand('audit')
    .description('list who changed what and when, on the command line and in the console')
    .option('--since <time>', 'only changes from this time on')
    .option('--limit <number>', 'maximum number of changes', DEFAULT_LIMIT)
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The latest change comes first; the last 10,000 are kept. --since takes a time before now, such as 1h or 2d, or a date and
time, such as 2026-01-31T18:00. Changes that somebody makes in Redis itself are not listed.`,
      examples: ['orc audit --since 1d', 'orc audit --json | jq -r \'.[] | select(.subject == "deploy")\''],
    })
    .action(async ({ since, limit, json }: { since?: string; limit: string; json?: boolean }) => {
      if (!/^[1-9]\d{0,4}$/.test(limit))
        throw new UsageError('--limit must be a whole number from 1 to 99999.');
      const filter = {
        limit: Number(limit),
        since: since === undefined ? undefined : parseTime(since, Date.now()),
      };
      const entries = await withStore(context, ({ audit }) => audit.list(filter));
      if (json) return output.json(entries);
      if (entries.length === 0) return output.line('Nothing was changed.');
      const rows = entries.map((entry) => [
        output.time(entry.at),
        actorName(entry.by),
        describeAction(entry),
        describeDetails(entry),
      ]);
      output.table(['WHEN', 'WHO', 'WHAT', 'DETAILS'], rows);
    });
}
