import { mkdir, stat, writeFile } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import type { CommandAction } from '../../core/actions/command.ts';
import type { AttemptResult } from '../../core/run.ts';
import { LOCK_LOST } from '../lease.ts';
import { removeFolder } from '../remove-folder.ts';
import { readResultFile } from '../run-result.ts';
import { type ActionContext, type ActionSettings, type Performer, TIMED_OUT, withResult } from './action.ts';
import {
  environmentOf,
  LOST_GRACE_MS,
  markOf,
  noteMissing,
  startProgram,
  TERMINATION_GRACE_MS,
} from './program.ts';

/** The exit code of a shell that did not find a command (POSIX, "Exit Status for Commands"). */
const NOT_FOUND_CODE = 127;

type CommandSettings = Pick<ActionSettings, 'environment' | 'workFolders'>;

export function openCommands(settings: CommandSettings): Performer<CommandAction> {
  return { perform: (action, context) => runCommand(action, settings, context) };
}

/**
 * Runs a program: payload on standard input, outputs into the run's log, exit code 0 is success. It leads a process group,
 * which ends with it. What left the group ends as well, on Linux: with a program that is made to end at once, with others
 * some hundred milliseconds later, by the guard.
 */
async function runCommand(
  action: CommandAction,
  { environment, workFolders }: CommandSettings,
  context: ActionContext,
): Promise<AttemptResult | 'interrupted'> {
  const { log, run, tidyUp } = context;
  let scratch: string | undefined;
  try {
    scratch = await workFolders.create();
    const files = {
      payload: join(scratch, 'payload.json'),
      result: join(scratch, 'result.json'),
      artifacts: join(scratch, 'artifacts'),
    };
    const cwd = action.cwd ?? join(scratch, 'work');
    noteMissing(action, environment, log, 'command');
    await writeFile(files.payload, run.payload, { mode: 0o600 });
    await mkdir(files.artifacts);
    if (action.cwd === undefined) await mkdir(cwd);
    const env = environmentOf(action, environment, context, files);
    const ending = await execute(action.argv, cwd, env, context);
    // Also of a command that failed or was ended. Those of a lost run are its next worker's to keep.
    if (context.signal.reason !== LOCK_LOST) await context.artifacts.collect(files.artifacts);
    if (ending === 'interrupted') return ending;
    return withResult(explained(ending, action), await readResultFile(files.result), log);
  } catch (error) {
    // Whatever fails, fails before the program runs: its folder, its start, the size of its arguments.
    const message = `The command could not be started: ${await explain(error as NodeJS.ErrnoException, action)}.`;
    log.note(message);
    return { outcome: { status: 'failed', reason: 'not_started', message }, mayRetry: true };
  } finally {
    // A folder that cannot be removed changes nothing about how the command ended.
    if (scratch !== undefined) tidyUp(removeFolder(scratch).catch((error) => log.note(String(error))));
  }
}

/** What Node's message leaves open: it names the program also when it is the working directory that is missing. */
async function explain(error: NodeJS.ErrnoException, { argv, cwd }: CommandAction): Promise<string> {
  const isDirectory = cwd === undefined || (await stat(cwd).catch(() => undefined))?.isDirectory();
  if (!isDirectory) return `there is no directory ${cwd}`;
  const [program = ''] = argv;
  if (!error.syscall?.startsWith('spawn')) return error.message;
  if (error.code === 'EACCES') return `the worker may not execute ${program} (${error.message})`;
  if (error.code !== 'ENOENT') return error.message;
  return `${await whyNotFound(program, cwd)} (${error.message})`;
}

async function whyNotFound(program: string, cwd: string | undefined): Promise<string> {
  if (!program.includes('/')) {
    const place =
      cwd === undefined ? 'the working directory is an empty one' : `it is not looked for in ${cwd}`;
    return `${program} is not on the PATH of the worker, and ${place}; use an absolute path, or --cwd DIR with ./${program}`;
  }
  if (cwd === undefined && !isAbsolute(program)) {
    return `${program} is not in the empty working directory of the attempt; use an absolute path, or set --cwd`;
  }
  const path = resolve(cwd ?? '/', program);
  const isThere = (await stat(path).catch(() => undefined)) !== undefined;
  return isThere
    ? `the interpreter in the first line of ${path} is missing`
    : `there is no ${path} on this worker`;
}

/** A shell that does not find a command says so, but not why. */
function explained(ending: AttemptResult, { cwd }: CommandAction): AttemptResult {
  const { outcome } = ending;
  if (outcome.exitCode !== NOT_FOUND_CODE || outcome.status !== 'failed') return ending;
  const why =
    cwd === undefined
      ? 'It ran in an empty working directory; use an absolute path, or set --cwd'
      : 'Use an absolute path';
  const message = `The command exited with code ${NOT_FOUND_CODE}: a command was not found. ${why}.`;
  return { ...ending, outcome: { ...outcome, message } };
}

async function execute(
  argv: string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
  { run, log, timeoutMs, signal, lease, guard }: ActionContext,
): Promise<AttemptResult | 'interrupted'> {
  await guard.ready;
  if (signal.aborted) return 'interrupted';
  const guarded = guard.watch(run, lease);
  try {
    const program = await startProgram(argv, { cwd, env }, markOf(run, guard.workerId));
    guarded.leads(program.group);
    program.stdout.on('data', (data: Buffer) => log.write('stdout', data));
    program.stderr.on('data', (data: Buffer) => log.write('stderr', data));
    program.stdin.end(run.payload);

    let interruption: unknown;
    const interrupt = () => {
      interruption = signal.reason;
      if (interruption === TIMED_OUT) {
        log.note(`The time limit of ${timeoutMs} ms is over: the command is told to end.`);
      }
      program.terminate(interruption === LOCK_LOST ? LOST_GRACE_MS : TERMINATION_GRACE_MS);
    };
    signal.addEventListener('abort', interrupt, { once: true });
    if (signal.aborted) interrupt();

    const [exitCode, exitSignal] = await program.exited;
    // Its outcome is certain from here on, whatever happens while its last output is read.
    signal.removeEventListener('abort', interrupt);
    await program.endGroup();
    guarded.end();
    await program.drain();
    if (interruption === TIMED_OUT) return judge(exitCode, exitSignal, timeoutMs);
    return interruption === undefined ? judge(exitCode, exitSignal) : 'interrupted';
  } finally {
    guarded.end();
  }
}

function judge(
  exitCode: number | null,
  signal: NodeJS.Signals | null,
  timedOutAfterMs?: number,
): AttemptResult {
  const ending = {
    ...(exitCode !== null && { exitCode }),
    ...(signal !== null && { signal }),
  };
  if (timedOutAfterMs !== undefined) {
    const message = `The command took longer than ${timedOutAfterMs} ms and was ended.`;
    return { outcome: { status: 'timed_out', reason: 'timeout', message, ...ending }, mayRetry: true };
  }
  if (signal !== null) {
    const message = `The command was ended by ${signal}.`;
    return { outcome: { status: 'failed', reason: 'signal', message, ...ending }, mayRetry: true };
  }
  const status = exitCode === 0 ? 'succeeded' : 'failed';
  const message = `The command exited with code ${exitCode}.`;
  return { outcome: { status, reason: 'exit_code', message, ...ending }, mayRetry: status === 'failed' };
}
