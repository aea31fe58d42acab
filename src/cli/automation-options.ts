import { resolve } from 'node:path';
import { Option } from 'commander';
import { CHECK_ATTEMPTS, DEFAULT_ALLOWED_TOOLS } from '../core/actions/agent.ts';
import { isSlug } from '../core/automation.ts';
import { type AutomationEntry, problemsOfEntry, WHAT_A_SLUG_IS } from '../core/automation-entry.ts';
import { UsageError } from './output.ts';

/** Said to whoever types an automation that does nothing. */
const SAY_WHAT_IT_DOES =
  'Say what it does: a command after --, such as `-- python3 report.py`, --agent <command line>, or --url <url>.';

/** An option that may be repeated; its values are collected in a list or a map. */
export class RepeatedOption extends Option {
  constructor(flags: string, description: string, collect: (text: string, before: unknown) => unknown) {
    super(flags, `${description}; may be repeated`);
    this.argParser(collect);
  }
}

/**
 * The options of `orc automations create` and `set`. Each has the name of a field of an entry, except for `--disabled`. None has a
 * default here: `definitionOf` knows them, and `set` keeps what is not named.
 */
export const AUTOMATION_OPTIONS: readonly Option[] = [
  new Option('--name <text>', 'display name'),
  new Option('--disabled', 'reject triggers'),
  new Option('--timeout <duration>', 'time limit of one attempt, such as 10m (default: RUN_TIMEOUT_MS)'),
  new Option('--attempts <number>', 'maximum number of attempts at a failing run (default: 1)').argParser(
    numberOr,
  ),
  new Option(
    '--concurrency <number>',
    'maximum number of runs that execute at the same time (default: no limit)',
  ).argParser(numberOr),
  new Option(
    '--when-busy <choice>',
    'with --concurrency, what to do with a run beyond it: queue or skip (default: queue)',
  ),
  new Option('--rate <rate>', 'maximum rate of accepted runs, such as 60/m (default: no limit)'),
  new Option('--keep-runs <number>', 'number of ended runs to keep (default: RUN_RETENTION_COUNT)').argParser(
    numberOr,
  ),
  new Option(
    '--on-worker-loss <choice>',
    'what to do with a run whose worker dies: rerun or fail (default: rerun)',
  ),
  new Option('--on-end <url>', 'send a signed event to this URL when a run has ended'),
  new Option('--on-failure <url>', 'send it to this URL only when a run has failed or timed out'),
  new Option(
    '--schema <file>',
    'JSON Schema 2020-12 that payloads must fit (default: any JSON object is accepted)',
  ),
  new Option('--url <url>', 'deliver the payload to this URL instead of running a command'),
  new Option('--cwd <dir>', 'working directory of the command (default: an empty one for each attempt)'),
  new Option('--agent <command line>', 'have an AI agent that speaks the Agent Client Protocol do the work'),
  new Option('--prompt <text>', 'the task of the agent; the payload is attached to it'),
  new Option('--prompt-file <file>', 'the same from a file'),
  new Option(
    '--repo <url>',
    'git repository to check out as the workspace of the agent (default: an empty folder)',
  ),
  new Option('--ref <ref>', 'branch, tag or commit to check out (default: the default branch)'),
  new Option(
    '--ref-from <pointer>',
    'JSON pointer to the branch, tag or commit in the payload, such as /ref',
  ),
  new Option(
    '--allow <kinds>',
    `kinds of tools that the agent may use (default: ${DEFAULT_ALLOWED_TOOLS.join(',')})`,
  ).argParser(listOf),
  new Option('--check <command>', 'shell command that decides whether the work of the agent is accepted'),
  new Option('--check-attempts <number>', `maximum number of checks (default: ${CHECK_ATTEMPTS})`).argParser(
    numberOr,
  ),
  new RepeatedOption(
    '--protect <path>',
    'file or folder of the repository to restore before the check',
    appended,
  ),
  new Option('--push <branch>', 'branch to push the work to after the check, such as orc/{runId}'),
  new RepeatedOption(
    '--git-env <KEY>',
    'variable of the worker for its git, which the agent does not get',
    appended,
  ),
  new Option('--max-cost <USD>', 'maximum cost of an attempt, as the agent reports it').argParser(amountOr),
  new Option(
    '--max-cost-per-day <USD>',
    'maximum cost of all runs of a day (UTC); at it, the automation is paused',
  ).argParser(amountOr),
  new Option(
    '--wrap <command line>',
    'command put before those of the agent and the check, such as a sandbox',
  ),
  new RepeatedOption(
    '--env <KEY=VALUE>',
    'variable for the command or agent, stored in Redis',
    (text, before = {}) => ({ ...(before as Record<string, string>), ...assignment(text) }),
  ),
  new RepeatedOption('--pass-env <KEY>', "variable taken from the worker's environment", appended),
];

/** The parsed values of {@link AUTOMATION_OPTIONS}, by the names of the entry's fields. */
export interface AutomationOptions extends Readonly<Record<string, unknown>> {
  disabled?: boolean;
}

/**
 * What a command line says of an automation, in the words of an entry. Other options are left out.
 *
 * @param command the words after `--`
 * @param directory from which a relative `--cwd` starts
 */
export function fieldsFrom(
  command: readonly string[],
  options: AutomationOptions,
  directory: string,
): AutomationEntry {
  const { disabled, cwd, ...values } = Object.fromEntries(
    AUTOMATION_OPTIONS.map((option) => option.attributeName())
      .filter((name) => options[name] !== undefined)
      .map((name) => [name, options[name]]),
  );
  // The worker has another working directory; an empty path is one that is wrong.
  const place = typeof cwd === 'string' && cwd !== '' ? resolve(directory, cwd) : cwd;
  return {
    ...values,
    ...(place !== undefined && { cwd: place }),
    ...(command.length > 0 && { command }),
    ...(disabled === true && { enabled: false }),
  };
}

/** @throws UsageError with every problem of a slug and its entry, in the words of the command line */
export function checkEntry(slug: string, entry: AutomationEntry): void {
  if (!isSlug(slug)) throw new UsageError(`'${slug}' is not a slug. ${WHAT_A_SLUG_IS}`);
  const problems = problemsOfEntry(entry).map(({ field, problem }) =>
    field === undefined ? SAY_WHAT_IT_DOES : `${optionOf(field)} ${problem}.`,
  );
  if (problems.length > 0) throw new UsageError(problems.join('\n'));
}

/** What cannot be a number stays the text that it is, to be named as wrong. */
function numberOr(text: string): number | string {
  return /^\d{1,9}$/.test(text) ? Number(text) : text;
}

function amountOr(text: string): number | string {
  return /^\d{1,9}(\.\d{1,6})?$/.test(text) ? Number(text) : text;
}

function listOf(text: string): string[] {
  return text.split(',').map((each) => each.trim());
}

function appended(text: string, before: unknown = []): string[] {
  return [...(before as string[]), text];
}

function assignment(text: string): Record<string, string> {
  const [, name, value] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) {
    throw new UsageError(`--env takes KEY=VALUE, not '${text}'.`);
  }
  return { [name]: value };
}

/** `keepRuns` is `--keep-runs`. */
function optionOf(field: string): string {
  return `--${field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}
