import { isTerminal, type Run } from '../core/run.ts';
import { explainDropped } from '../ops/kept.ts';
import { type CommandContext, withStore } from './context.ts';
import type { OrcCommand } from './orc-command.ts';
import { CommandError } from './output.ts';
import { getRun } from './run-control.ts';
import { addRunReference, findRunId, RUN_REFERENCE_HELP, type RunReferenceOptions } from './run-reference.ts';

/** A longer result is not shown among other lines, in characters. */
const MAX_SHOWN_LENGTH = 1000;

/** Adds `orc runs result`. */
export function addRunResult(group: OrcCommand, context: CommandContext): void {
  addRunReference(
    group
      .command('result')
      .description('print the result of a run: the JSON object that its command or its receiver gave'),
  )
    .option('--json', 'the same; the result is always JSON')
    .moreHelp({
      notes: `A command gives a result by writing a JSON object of at most 64 KiB to the file $ORC_RESULT_FILE; a receiver, by answering
with one. Failed runs may have one, too. It is printed as it was given, with secrets masked.

${RUN_REFERENCE_HELP}`,
      examples: [
        'orc runs result run_01a1fd79-2020-716f-b65b-e40f10ea5e54',
        'orc runs result --last build | jq -r .version',
      ],
    })
    .action(async (reference: string | undefined, options: RunReferenceOptions) => {
      const { run, text, dropped } = await withStore(context, async (store) => {
        const found = await getRun(store, await findRunId(store, reference, options));
        const [text, dropped] = await Promise.all([
          store.results.read(found),
          explainDropped(store, found.id),
        ]);
        return { run: found, text, dropped };
      });
      if (text === undefined) throw new CommandError(whyNone(run, dropped));
      context.output.out(text.endsWith('\n') ? text : `${text}\n`);
    });
}

function whyNone({ id, status, outcome }: Run, dropped: string | undefined): string {
  if (!isTerminal(status))
    return `The run ${id} is ${status}. It may have a result once it has ended: orc runs watch ${id}`;
  if (outcome?.resultBytes !== undefined && dropped !== undefined)
    return `The run ${id} had a result. ${dropped}`;
  const why = outcome?.resultProblem ?? 'A command gives one by writing a JSON object to $ORC_RESULT_FILE.';
  return `The run ${id} has no result. ${why}`;
}

/** A result in one line, or why there is none. @param text the stored result */
export function resultLine({ id, outcome }: Run, text: string | undefined): string | undefined {
  if (text === undefined) return outcome?.resultProblem;
  const line = JSON.stringify(JSON.parse(text));
  return line.length <= MAX_SHOWN_LENGTH ? line : `${outcome?.resultBytes} bytes: orc runs result ${id}`;
}
