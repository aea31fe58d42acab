import { StringDecoder } from 'node:string_decoder';
import { setTimeout as sleep } from 'node:timers/promises';
import { isTerminal, RUN_STATUSES, type Run, type RunAttemptRecord, type RunStatus } from '../core/run.ts';
import type { RunLogEntry } from '../store/run-log.ts';
import type { Store } from '../store/store.ts';
import { unknownSlug } from './automations.ts';
import { type CommandContext, withStore } from './context.ts';
import { formatDuration } from './durations.ts';
import { OrcCommand } from './orc-command.ts';
import { type Output, type ProgramOutput, pairs, UsageError } from './output.ts';
import { addRunControl, getRun } from './run-control.ts';
import { overviewOf, summarise } from './status.ts';

/** `--follow` polls this often, in milliseconds. */
const FOLLOW_INTERVAL_MS = 200;

const STATUS_STYLES: Readonly<Record<RunStatus, 'dim' | 'cyan' | 'yellow' | 'green' | 'red'>> = {
  queued: 'dim',
  running: 'cyan',
  retrying: 'yellow',
  succeeded: 'green',
  failed: 'red',
  timed_out: 'red',
  cancelled: 'yellow',
};

/** `orc runs …`: list, watch, cancel and repeat runs. */
export function runsCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  const group = new OrcCommand('runs').description('list, watch, cancel and repeat runs');

  group
    .command('list')
    .description('list runs, the newest first')
    .option('--automation <slug>', 'only runs of this automation')
    .option('--status <status>', `only runs with this status: ${RUN_STATUSES.join(', ')}`)
    .option('--limit <number>', 'maximum number of runs', '20')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `A line on standard error says how many runs wait and execute, and how many workers are alive.`,
      examples: [
        'orc runs list --automation deploy --limit 5',
        "orc runs list --status failed --json | jq -r '.[].id'",
      ],
    })
    .action(async (options: { automation?: string; status?: string; limit: string; json?: boolean }) => {
      const filter = filterOf(options);
      const { runs, overview } = await withStore(context, async (store) => {
        const found = await store.runs.list(filter);
        // No runs may mean a typo. A deleted automation may still have runs to list.
        const { automation } = filter;
        if (found.length === 0 && automation !== undefined && !(await store.automations.get(automation))) {
          throw await unknownSlug(store, automation);
        }
        return { runs: found, overview: await overviewOf(store) };
      });
      if (options.json) return output.json(runs);
      output.err(`${output.style('dim', summarise(overview))}\n`);
      if (runs.length === 0) return output.line('There are no such runs.');
      const rows = runs.map((run) => [
        run.id,
        run.automation,
        styled(run.status, output),
        run.acceptedAt.toISOString(),
        durationOf(run) ?? '',
        run.outcome?.message ?? '',
      ]);
      output.table(['RUN', 'AUTOMATION', 'STATUS', 'ACCEPTED', 'TOOK', 'RESULT'], rows);
    });

  group
    .command('show')
    .description('show one run: its status, its result, its caller and its attempts')
    .argument('<runId>', 'the run, as in the answer to the trigger')
    .option('--json', 'print JSON')
    .moreHelp({ examples: ['orc runs show run_01a1fd79-2020-716f-b65b-e40f10ea5e54'] })
    .action(async (runId: string, { json }: { json?: boolean }) => {
      const { run, attempts, isCancelling } = await withStore(context, async (store) => {
        const found = await getRun(store, runId);
        const [made, isCancelRequested] = await Promise.all([
          store.runs.attempts(found),
          store.runs.isCancelRequested(runId),
        ]);
        const isCancelling = isCancelRequested && !isTerminal(found.status);
        return { run: found, attempts: made, isCancelling };
      });
      if (json) return output.json({ ...run, attempts });
      for (const line of describe(run, output)) output.line(line);
      if (isCancelling) output.line('An operator has cancelled this run; its worker is ending it.');
      if (attempts.length < 2) return;
      output.line();
      output.table(['ATTEMPT', 'STARTED', 'TOOK', 'WORKER', 'RESULT'], attempts.map(rowOf));
    });

  group
    .command('logs')
    .description('print the log of a run: its standard output to standard output, the rest to standard error')
    .argument('<runId>', 'the run')
    .option('-f, --follow', 'keep printing until the run has ended')
    .option('--json', 'print one JSON object per line, with time, attempt and source')
    .moreHelp({
      notes: `The first and the last 512 KiB of each run are kept; a remark says how much was cut between them.`,
      examples: ['orc runs logs run_01a1fd79-2020-716f-b65b-e40f10ea5e54 --follow'],
    })
    .action(async (runId: string, options: { follow?: boolean; json?: boolean }) => {
      await withStore(context, (store) => printLogs(store, runId, options, output));
    });

  addRunControl(group, context);
  return group;
}

function filterOf(options: { automation?: string; status?: string; limit: string }) {
  const status = RUN_STATUSES.find((each) => each === options.status);
  if (options.status !== undefined && status === undefined) {
    throw new UsageError(`'${options.status}' is not a status. Use one of: ${RUN_STATUSES.join(', ')}.`);
  }
  if (!/^[1-9]\d{0,3}$/.test(options.limit)) {
    throw new UsageError(`--limit must be a whole number from 1 to 9999, not '${options.limit}'.`);
  }
  return {
    limit: Number(options.limit),
    ...(status !== undefined && { status }),
    ...(options.automation !== undefined && { automation: options.automation }),
  };
}

async function printLogs(
  store: Store,
  runId: string,
  { follow, json }: { follow?: boolean; json?: boolean },
  output: Output,
): Promise<void> {
  let position: string | undefined;
  const cutBefore = gapFinder();
  const printer = json ? printerOfJson(output) : printerOfText(output);
  for (;;) {
    // The status is read first: the log of an ended run is complete.
    const run = await getRun(store, runId);
    for (;;) {
      const { entries, position: next } = await store.runLogs.read(runId, position);
      if (entries.length === 0) break;
      position = next;
      for (const entry of entries) printer.print(entry, cutBefore(entry));
    }
    if (!follow || isTerminal(run.status)) return printer.end();
    await sleep(FOLLOW_INTERVAL_MS);
  }
}

interface LogPrinter {
  /** @param cutBytes how many bytes were cut from the log before this entry */
  print(entry: RunLogEntry, cutBytes: number): void;
  end(): void;
}

/** Counts the bytes that were cut from a log before an entry. */
function gapFinder(): (entry: RunLogEntry) => number {
  /** Offset of each attempt's next entry if nothing is cut before it. */
  const offsets = new Map<number, number>();
  return ({ attempt, offset, data }) => {
    const cut = offset - (offsets.get(attempt) ?? 0);
    offsets.set(attempt, offset + data.length);
    return cut;
  };
}

function printerOfJson(output: Output): LogPrinter {
  // An entry may end inside a character; the rest is in the next entry of that attempt and source.
  const decoders = new Map<string, StringDecoder>();
  return {
    print: ({ time, attempt, source, data }, cutBytes) => {
      if (cutBytes > 0) {
        output.out(`${JSON.stringify({ attempt, cutBytes })}\n`);
        decoders.clear();
      }
      const decoder = decoders.get(`${attempt} ${source}`) ?? new StringDecoder('utf8');
      decoders.set(`${attempt} ${source}`, decoder);
      output.out(`${JSON.stringify({ time, attempt, source, text: decoder.write(data) })}\n`);
    },
    end: () => undefined,
  };
}

function printerOfText(output: Output): LogPrinter {
  const programs = new Map<string, ProgramOutput>();
  const end = () => {
    for (const program of programs.values()) program.end();
    programs.clear();
  };
  return {
    print: ({ attempt, source, data }, cutBytes) => {
      if (cutBytes > 0) {
        end();
        output.err(`\norc: ${cutBytes} bytes of output were cut here\n`);
      }
      if (source === 'orc') return output.err(data.toString('utf8').replace(/^(?=.)/gm, 'orc: '));
      const program =
        programs.get(`${attempt} ${source}`) ?? output.programOutput(source === 'stdout' ? 'out' : 'err');
      programs.set(`${attempt} ${source}`, program);
      program.write(data);
    },
    end,
  };
}

function durationOf({ startedAt, endedAt, status }: Run): string | undefined {
  if (!startedAt || status === 'queued') return undefined;
  return formatDuration((endedAt ?? new Date()).getTime() - startedAt.getTime());
}

function styled(status: RunStatus, output: Output): string {
  return output.style(STATUS_STYLES[status], status);
}

function describe(run: Run, output: Output): string[] {
  const { outcome } = run;
  return pairs([
    ['run', run.id],
    ['repeats', run.retryOf],
    ['automation', run.automation],
    ['status', styled(run.status, output)],
    ['result', outcome?.message],
    ['reason', outcome?.reason],
    ['exit code', outcome?.exitCode === undefined ? undefined : String(outcome.exitCode)],
    ['signal', outcome?.signal],
    ['HTTP status', outcome?.httpStatus === undefined ? undefined : String(outcome.httpStatus)],
    ['attempt', run.maxAttempts > 1 ? `${run.attempt} of at most ${run.maxAttempts}` : `${run.attempt}`],
    ['accepted', run.acceptedAt.toISOString()],
    ['started', run.startedAt?.toISOString()],
    ['ended', run.endedAt?.toISOString()],
    ['took', durationOf(run)],
    ['worker', run.worker],
    ['payload', `${run.payloadBytes} bytes`],
    ['request', run.requestId],
    ['caller', run.caller?.address],
    ['user agent', run.caller?.userAgent],
  ]);
}

function rowOf({ attempt, worker, startedAt, endedAt, outcome, interruption }: RunAttemptRecord): string[] {
  const took = endedAt ? formatDuration(endedAt.getTime() - startedAt.getTime()) : '';
  const result = outcome?.message ?? interruption ?? 'executing';
  return [String(attempt), startedAt.toISOString(), took, worker, result];
}
