import { outcomeLine, outcomeSummary, type Run, type RunStatus, shortRunId } from '../core/run.ts';
import { durationOf } from '../core/run-duration.ts';
import { overviewOf } from '../ops/overview.ts';
import type { RunFilter } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import { unknownSlug } from './automations.ts';
import { type CommandContext, withStore } from './context.ts';
import type { OrcCommand } from './orc-command.ts';
import { type Output, UsageError } from './output.ts';
import { addRunFilters, RUN_FILTERS_HELP, type RunFilterOptions, runFilterOf } from './run-filters.ts';
import { runForPrograms } from './run-reference.ts';
import { summarise } from './status.ts';

const STATUS_STYLES: Readonly<Record<RunStatus, 'dim' | 'cyan' | 'yellow' | 'green' | 'red'>> = {
  queued: 'dim',
  running: 'cyan',
  retrying: 'yellow',
  succeeded: 'green',
  failed: 'red',
  timed_out: 'red',
  cancelled: 'yellow',
};

/** Adds `orc runs list`. */
export function addRunList(group: OrcCommand, context: CommandContext): void {
  const { output } = context;
  addRunFilters(group.command('list').description('list runs, the newest first'))
    .option('--limit <number>', 'maximum number of runs', '20')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `${RUN_FILTERS_HELP}

A line on standard error says how many runs wait and execute, and how many workers are alive.`,
      examples: [
        'orc runs list --failed --since 1h',
        'orc runs list --automation deploy --status queued,running --limit 1000',
        "orc runs list --status failed --json | jq -r '.[].runId'",
      ],
    })
    .action(async (options: RunFilterOptions & { limit: string; json?: boolean }) => {
      const filter = { ...runFilterOf(options), limit: limitOf(options.limit) };
      const printer = options.json ? printerOfJson(output) : printerOfTable(filter, output);
      await withStore(context, async (store) => {
        const { automation } = filter;
        if ((await printRuns(store, filter, printer, output)) > 0) return;
        // No runs may mean a typo. A deleted automation may still have runs to list.
        if (automation !== undefined && !(await store.automations.get(automation))) {
          throw await unknownSlug(store, automation);
        }
        await printer.printNone(store);
      });
    });
}

function limitOf(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) {
    throw new UsageError(`--limit must be a whole number from 1 to 999999999, not '${text}'.`);
  }
  return Number(text);
}

/** Prints runs page by page, so that any number of them takes little memory. @returns how many there are */
async function printRuns(
  store: Store,
  filter: RunFilter,
  printer: ListPrinter,
  output: Output,
): Promise<number> {
  let count = 0;
  for await (const runs of store.runs.pages(filter)) {
    if (count === 0) await printer.begin(store);
    count += runs.length;
    printer.print(runs);
    if (output.isClosed()) break;
  }
  if (count > 0) printer.end();
  return count;
}

interface ListPrinter {
  begin(store: Store): Promise<void>;
  print(runs: Run[]): void;
  end(): void;
  printNone(store: Store): Promise<void>;
}

function printerOfJson(output: Output): ListPrinter {
  const list = output.openJsonList();
  return {
    printNone: async () => list.end(),
    begin: async () => undefined,
    print: (runs) => list.items(runs.map(runForPrograms)),
    end: list.end,
  };
}

function printerOfTable({ failed }: { failed?: boolean | undefined }, output: Output): ListPrinter {
  const time = failed ? 'ENDED' : 'ACCEPTED';
  const table = output.openTable(['RUN', 'AUTOMATION', 'STATUS', time, 'TOOK', 'OUTCOME']);
  const describeOutcome = output.isTerminal ? outcomeSummary : outcomeLine;
  const begin = async (store: Store) =>
    output.err(`${output.style('dim', summarise(await overviewOf(store)))}\n`);
  return {
    begin,
    print: (runs) => {
      const ids = idsForPeople(
        runs.map(({ id }) => id),
        output,
      );
      const rows = runs.map((run, index) => [
        ids[index] ?? run.id,
        run.automation,
        styled(run.status, output),
        output.time((failed && run.endedAt) || run.acceptedAt),
        durationOf(run) ?? '',
        run.outcome ? describeOutcome(run.outcome) : '',
      ]);
      table.rows(rows);
    },
    end: () => undefined,
    printNone: async (store) => {
      await begin(store);
      output.line('There are no such runs.');
    },
  };
}

/** On a terminal the short form, unless two of these runs have the same. */
function idsForPeople(runIds: readonly string[], output: Output): string[] {
  if (!output.isTerminal) return [...runIds];
  const short = runIds.map(shortRunId);
  return runIds.map((runId, index) =>
    short.filter((each) => each === short[index]).length === 1 ? (short[index] ?? runId) : runId,
  );
}

export function styled(status: RunStatus, output: Output): string {
  return output.style(STATUS_STYLES[status], status);
}
