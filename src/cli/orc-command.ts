import { Command } from 'commander';

/** A command whose help says more below its options. */
export class OrcCommand extends Command {
  override createCommand(name?: string): OrcCommand {
    return new OrcCommand(name);
  }

  /**
   * @param help.notes what the options do not say
   * @param help.exitCodes for commands with exit codes of their own
   */
  moreHelp(help: { notes?: string; exitCodes?: string; examples: string[] }): this {
    const { notes, exitCodes = '0 success, 1 failure, 2 usage error', examples } = help;
    return this.addHelpText(
      'after',
      [
        ...(notes === undefined ? [] : ['', notes]),
        `\nExit codes: ${exitCodes}.\n`,
        examples.length === 1 ? 'Example:' : 'Examples:',
        ...examples.map((example) => `  $ ${example}`),
      ].join('\n'),
    );
  }
}
