import { StringDecoder } from 'node:string_decoder';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventsIn } from '../core/agent-event.ts';
import { transcriptText } from '../core/agent-transcript.ts';
import { gapFinder } from '../core/log-gaps.ts';
import { isTerminal } from '../core/run.ts';
import { explainDropped } from '../ops/kept.ts';
import { describeObstacle, obstacleOf } from '../ops/waiting-run.ts';
import type { RunLogEntry } from '../store/run-log.ts';
import type { Store } from '../store/store.ts';
import type { Output, ProgramOutput } from './output.ts';
import { getRun } from './run-control.ts';

/** `--follow` polls this often, in milliseconds. */
const FOLLOW_INTERVAL_MS = 200;

/**
 * Prints the log of a run.
 *
 * @param options.follow whether to go on until the run has ended, or until `endsAt` by `Date.now()`
 * @throws CommandError when there is no such run
 */
export async function printLogs(
  store: Store,
  runId: string,
  options: LogOptions,
  output: Output,
): Promise<void> {
  const run = await getRun(store, runId);
  const obstacle = await obstacleOf(store, run);
  if (obstacle) output.err(`orc: ${run.status}: ${describeObstacle(obstacle)}\n`);
  if (await print(store, runId, options, output)) return;
  const dropped = await explainDropped(store, runId);
  if (dropped !== undefined) output.err(`orc: ${dropped}\n`);
  else if (!obstacle && !options.follow && !isTerminal(run.status)) {
    output.err(`orc: ${run.status}; nothing is printed yet\n`);
  }
}

interface LogOptions {
  follow?: boolean;
  json?: boolean;
  endsAt?: number | undefined;
}

/** @returns whether there was anything to print */
async function print(
  store: Store,
  runId: string,
  { follow, json, endsAt }: LogOptions,
  output: Output,
): Promise<boolean> {
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
      for (const entry of entries) {
        printer.print(entry, cutBefore({ ...entry, bytes: entry.data.length }));
      }
    }
    const isOver = !follow || isTerminal(run.status) || (endsAt !== undefined && Date.now() >= endsAt);
    if (isOver) {
      printer.end();
      return position !== undefined;
    }
    await sleep(FOLLOW_INTERVAL_MS);
  }
}

interface LogPrinter {
  /** @param cutBytes how many bytes were cut from the log before this entry */
  print(entry: RunLogEntry, cutBytes: number): void;
  end(): void;
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
      if (source === 'agent') {
        for (const event of eventsIn(data.toString('utf8')))
          output.out(`${JSON.stringify({ time: event.at, attempt, source, event })}\n`);
        return;
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
      if (source === 'agent') {
        for (const event of eventsIn(data.toString('utf8'))) output.out(transcriptText(event));
        return;
      }
      const program =
        programs.get(`${attempt} ${source}`) ?? output.programOutput(source === 'stdout' ? 'out' : 'err');
      programs.set(`${attempt} ${source}`, program);
      program.write(data);
    },
    end,
  };
}
