import { Command, type ErrorOptions } from 'commander';

/** A command whose help says more below its options. */
export class OrcCommand extends Command {
  override createCommand(name?: string): OrcCommand {
    return new OrcCommand(name);
  }

  /** What a usage error tells its reader to do: ``See `orc runs list --help`.`` */
  get seeHelp(): string {
    const names: string[] = [];
    for (let command: Command | null = this; command; command = command.parent) names.unshift(command.name());
    return `See \`${names.join(' ')} --help\`.`;
  }

  override error(message: string, options?: ErrorOptions): never {
    this.showHelpAfterError(this.seeHelp);
    return super.error(message, options);
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
