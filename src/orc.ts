#!/usr/bin/env node
import { type Command, CommanderError } from 'commander';
import { fileCommands } from './cli/apply.ts';
import { automationsCommand } from './cli/automations.ts';
import { completionCommands } from './cli/completion.ts';
import type { CommandContext } from './cli/context.ts';
import { doctorCommand } from './cli/doctor.ts';
import { localCommand } from './cli/local.ts';
import { OrcCommand } from './cli/orc-command.ts';
import { CommandError, createOutput, UsageError } from './cli/output.ts';
import { processCommands } from './cli/processes.ts';
import { runsCommand } from './cli/runs.ts';
import { statusCommand } from './cli/status.ts';
import { type Config, packageVersion, processEnvironment, readConfig } from './config.ts';
import { errorText } from './core/error-record.ts';
import { stateDirOf } from './local/data-folder.ts';

/** Exit codes: 0 success, 1 failure, 2 usage error; commands that wait for a run have more. */
const FAILURE = 1;
const USAGE = 2;

const output = createOutput(process.stdout, process.stderr, Boolean(processEnvironment()['NO_COLOR']));
let config: Config | undefined;
const context: CommandContext = {
  // Read once: a secret's file may be a pipe.
  config: () => {
    config ??= readConfig();
    return config;
  },
  output,
  directory: process.cwd(),
  stateDir: () => stateDirOf(processEnvironment()),
};

const program = new OrcCommand('orc')
  .description('Start automations over HTTP, execute them, and see how they went.')
  .version(packageVersion(), '-V, --version', 'print the version')
  .moreHelp({
    notes: `Commands use the Redis of REDIS_URL, or else of the \`orc local\` that runs in this folder or above it.
See \`orc <command> --help\`. Commands that print a result print JSON with --json.`,
    exitCodes: '0 success, 1 failure, 2 usage error; commands that wait for a run have more, see their help',
    examples: ['orc local', 'orc automations create hello -- cat', 'orc runs list'],
  })
  .configureOutput({ writeOut: output.out, writeErr: output.err })
  .showHelpAfterError('See `orc <command> --help`.')
  .exitOverride();
for (const command of [
  localCommand(context),
  ...processCommands(context),
  automationsCommand(context),
  ...fileCommands(context),
  runsCommand(context),
  statusCommand(context),
  doctorCommand(context),
]) {
  program.addCommand(command);
}
const [completion, complete] = completionCommands(context, program);
program.addCommand(completion).addCommand(complete, { hidden: true });
inherit(program);

try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = exitCodeOf(error);
}

/** Commander copies a parent's settings to subcommands that it creates itself, but not to added ones. */
function inherit(parent: Command): void {
  for (const command of parent.commands) {
    command.copyInheritedSettings(parent);
    inherit(command);
  }
}

function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE;
  output.err(`orc: ${errorText(error instanceof Error ? error.message : String(error))}\n`);
  if (error instanceof CommandError) return error.exitCode;
  return error instanceof UsageError ? USAGE : FAILURE;
}
