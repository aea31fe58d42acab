export interface HelpText {
  /** What the options do not say. */
  notes?: string;
  /** For commands with exit codes of their own. */
  exitCodes?: string;
  examples: string[];
}

/** The part of a command's help below its options. */
export function helpText({ notes, exitCodes, examples }: HelpText): string {
  return [
    ...(notes === undefined ? [] : ['', notes]),
    '',
    `Exit codes: ${exitCodes ?? '0 success, 1 failure, 2 usage error'}.`,
    '',
    examples.length === 1 ? 'Example:' : 'Examples:',
    ...examples.map((example) => `  $ ${example}`),
  ].join('\n');
}
