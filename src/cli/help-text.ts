export interface HelpText {
  /** What the options do not say. */
  notes?: string;
  /** Where it has more than every command. */
  exitCodes?: string;
  examples: string[];
}

/** What stands below the options of a command. */
export function helpText({ notes, exitCodes, examples }: HelpText): string {
  return [
    ...(notes === undefined ? [] : ['', notes]),
    '',
    `Exit codes: ${exitCodes ?? '0 success, 1 failure, 2 typed wrongly'}.`,
    '',
    examples.length === 1 ? 'Example:' : 'Examples:',
    ...examples.map((example) => `  $ ${example}`),
  ].join('\n');
}
