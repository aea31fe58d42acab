import { Option } from 'commander';
import { UsageError } from './output.ts';

/** Said to whoever types an automation that does nothing. */
export const SAY_WHAT_IT_DOES =
  'Say what it does: a command after --, such as `-- python3 report.py`, or --url <url>.';

/** The options of `orc automations create` that say what it does; each has the name of a field of an entry. */
export const ACTION_OPTIONS: readonly Option[] = [
  new Option('--url <url>', 'deliver the payload to this URL instead of running a command'),
  new Option('--cwd <dir>', 'working directory of the command (default: an empty one for each attempt)'),
  new Option('--env <KEY=VALUE>', 'variable for the command, stored in Redis; may be repeated').argParser(
    (text, before: Record<string, string> = {}) => ({ ...before, ...assignment(text) }),
  ),
  new Option('--pass-env <KEY>', "variable taken from the worker's environment; may be repeated").argParser(
    (name, before: string[] = []) => [...before, name],
  ),
];

function assignment(text: string): Record<string, string> {
  const [, name, value] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) {
    throw new UsageError(`--env takes KEY=VALUE, not '${text}'.`);
  }
  return { [name]: value };
}
