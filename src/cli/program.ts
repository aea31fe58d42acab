import { type Command, CommanderError } from 'commander';
import { type Config, ConfigError, packageVersion, readConfig } from '../config.ts';
import { errorText } from '../core/error-record.ts';
import { InputError } from '../core/input-error.ts';
import { stateDirOf } from '../local/data-folder.ts';
import { fileCommands } from './apply.ts';
import { auditCommand } from './audit.ts';
import { automationsCommand } from './automations.ts';
import { completionCommands } from './completion.ts';
import type { CommandContext } from './context.ts';
import { doctorCommand } from './doctor.ts';
import { localCommand } from './local.ts';
import { operatorsCommand } from './operators.ts';
import { OrcCommand } from './orc-command.ts';
import {
  CommandError,
  createOutput,
  type Output,
  type TerminalInput,
  type TerminalOutput,
} from './output.ts';
import { processCommands } from './processes.ts';
import { runsCommand } from './runs.ts';
import { statusCommand } from './status.ts';
import { triggerCommand } from './trigger.ts';

/** Exit codes: 0 success, 1 failure, 2 usage error; commands that wait for a run have more. */
const FAILURE = 1;
const USAGE = 2;

/** One call of `orc`, by a shell or by a test. */
export interface Invocation {
  /** What follows `orc`. */
  args: readonly string[];
  /** Standard input, opened on the first call. */
  stdin(): TerminalInput;
  stdout: TerminalOutput;
  stderr: TerminalOutput;
  env: Readonly<NodeJS.ProcessEnv>;
  /** The working directory. */
  directory: string;
}

/**
 * Runs one command. `local`, `api` and `worker` have only started when it returns, and own the process from then on; every
 * other command is over and has left nothing open.
 *
 * @returns the exit code
 */
export async function runProgram(invocation: Invocation): Promise<number> {
  const { args } = invocation;
  const context = contextOf(invocation, asksForJson(args));
  const program = createProgram(context);
  try {
    await program.parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    const { seeHelp } = commandIn(program, args);
    report(error, seeHelp, context.output, asksForJson(args));
    return exitCodeOf(error);
  }
}

/** The command that a command line names, as far as it names one that exists. */
function commandIn(program: OrcCommand, args: readonly string[]): OrcCommand {
  const [first, ...others] = args;
  const named = program.commands.find((command) => command.name() === first);
  return named instanceof OrcCommand ? commandIn(named, others) : program;
}

/** Known before the command line is parsed, so that usage errors are JSON, too. After `--` comes another program's. */
function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end === -1 ? undefined : end).includes('--json');
}

function contextOf(invocation: Invocation, isJson: boolean): CommandContext {
  const { stdin, stdout, stderr, env, directory } = invocation;
  let config: Config | undefined;
  const output = createOutput(stdout, stderr, Boolean(env['NO_COLOR']));
  return {
    // Read once: a secret's file may be a pipe.
    config: () => {
      config ??= readConfig(env);
      return config;
    },
    env,
    // Programs find nothing but an error on standard error.
    output: isJson ? { ...output, err: () => undefined } : output,
    stdin,
    stdout,
    directory,
    stateDir: () => stateDirOf(env),
  };
}

function createProgram(context: CommandContext): OrcCommand {
  const { output } = context;
  const program = new OrcCommand('orc')
    .description('Start automations over HTTP, execute them, and see how they went.')
    .version(packageVersion(), '-V, --version', 'print the version')
    .moreHelp({
      notes: `Commands use the Redis of REDIS_URL, or else of the \`orc local\` that runs in this folder or above it.
See \`orc <command> --help\`. Commands that print a result print JSON with --json; their errors are then one line of JSON on
standard error: {"error", "message", "hint"}.`,
      exitCodes:
        '0 success, 1 failure, 2 usage error; commands that wait for a run have more, see their help',
      examples: ['orc local', 'orc automations create hello -- cat', 'orc trigger hello', 'orc runs list'],
    })
    .configureOutput({
      writeOut: output.out,
      writeErr: output.err,
      outputError: (text, write) => write(text.replace(/^error: /, 'orc: ')),
    })
    .exitOverride();
  for (const command of [
    localCommand(context),
    ...processCommands(context),
    automationsCommand(context),
    ...fileCommands(context),
    triggerCommand(context),
    runsCommand(context),
    operatorsCommand(context),
    auditCommand(context),
    statusCommand(context),
    doctorCommand(context),
  ]) {
    program.addCommand(command);
  }
  const [completion, complete] = completionCommands(context, program);
  program.addCommand(completion).addCommand(complete, { hidden: true });
  inherit(program);
  return program;
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
  if (error instanceof CommandError) return error.exitCode;
  return error instanceof InputError ? USAGE : FAILURE;
}

function report(error: unknown, seeHelp: string, output: Output, isJson: boolean): void {
  // Help and the version, which were asked for, and what commander has said already.
  if (error instanceof CommanderError && (error.exitCode === 0 || !isJson)) return;
  const described = describeError(error);
  const { message, hint } = { ...described, message: errorText(described.message) };
  if (isJson) output.jsonError({ ...described, message: message.trim(), hint: hint ?? seeHelp });
  else output.err(`orc: ${message}${hint === undefined ? '' : `${gapAfter(message)}${hint}`}\n`);
}

/** What a program said last, at the end of a message, is no sentence. */
function gapAfter(message: string): string {
  if (message.endsWith('\n')) return '';
  return /[.?!:]$/.test(message) ? ' ' : '\n';
}

/** An error as programs see it. `error` is `usage_error`, `invalid_environment`, `internal_error` or a {@link CommandError}'s. */
function describeError(error: unknown): { error: string; message: string; hint?: string | undefined } {
  if (error instanceof CommandError) {
    const { error: id, message, hint } = error;
    return { error: id, message, hint };
  }
  if (error instanceof CommanderError) {
    const message = error.code === 'commander.help' ? 'The command is incomplete.' : error.message;
    return { error: 'usage_error', message: message.replace(/^error: /, '') };
  }
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof InputError) return { error: 'usage_error', message };
  return { error: error instanceof ConfigError ? 'invalid_environment' : 'internal_error', message };
}
