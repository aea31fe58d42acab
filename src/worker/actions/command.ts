import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type CommandAction, INHERITED_VARIABLES } from '../../core/actions/command.ts';
import { withDeadline } from '../../core/deadline.ts';
import type { AttemptResult, RunAttempt } from '../../core/run.ts';
import { LOCK_LOST } from '../lease.ts';
import { removeFolder } from '../remove-folder.ts';
import { killMarked, type RunMark, signalGroup, signalMarked } from '../run-processes.ts';
import { type ActionContext, type ActionSettings, type Performer, TIMED_OUT } from './action.ts';

/** Between the TERM and the KILL of a command that must end, in milliseconds. */
const TERMINATION_GRACE_MS = 5000;

/** The same when the run is lost, and somebody else may soon execute it or does so already, in milliseconds. */
const LOST_GRACE_MS = 1000;

/** After the command's exit its output is waited for this long, in milliseconds: an escaped process can hold it open. */
const OUTPUT_DRAIN_MS = 1000;

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
  const { log, run } = context;
  let scratch: string | undefined;
  try {
    scratch = await workFolders.create();
    const payloadFile = join(scratch, 'payload.json');
    const cwd = action.cwd ?? join(scratch, 'work');
    await writeFile(payloadFile, run.payload, { mode: 0o600 });
    if (action.cwd === undefined) await mkdir(cwd);
    const env = environmentOf(action, environment, context, payloadFile);
    return await execute(action.argv, cwd, env, context);
  } catch (error) {
    // Whatever fails, fails before the program runs: its folder, its start, the size of its arguments.
    const message = `The command could not be started: ${await explain(error as Error, action)}.`;
    log.note(message);
    return { outcome: { status: 'failed', reason: 'not_started', message }, mayRetry: true };
  } finally {
    // A folder that cannot be removed changes nothing about how the command ended.
    if (scratch !== undefined) await removeFolder(scratch).catch((error) => log.note(String(error)));
  }
}

/** Node's message names the program also when it is the working directory that is missing. */
async function explain(error: Error, { cwd }: CommandAction): Promise<string> {
  const isDirectory = cwd === undefined || (await stat(cwd).catch(() => undefined))?.isDirectory();
  return isDirectory ? error.message : `there is no directory ${cwd}`;
}

function environmentOf(
  { env, passEnv }: CommandAction,
  environment: Readonly<NodeJS.ProcessEnv>,
  { run, guard }: ActionContext,
  payloadFile: string,
): NodeJS.ProcessEnv {
  const taken = [...INHERITED_VARIABLES, ...passEnv].map((name) => [name, environment[name]]);
  return {
    ...Object.fromEntries(taken.filter(([, value]) => value !== undefined)),
    ...env,
    ...markOf(run, guard.workerId),
    ORC_AUTOMATION: run.automation,
    ORC_PAYLOAD_FILE: payloadFile,
    ORC_ACCEPTED_AT: run.acceptedAt.toISOString(),
    ...(run.traceparent !== undefined && { TRACEPARENT: run.traceparent }),
    ...(run.tracestate !== undefined && { TRACESTATE: run.tracestate }),
  };
}

/** The part of the command's environment by which the processes that it starts are found again. */
function markOf({ id, attempt }: RunAttempt, workerId: string): Required<RunMark> {
  return { ORC_WORKER: workerId, ORC_RUN_ID: id, ORC_ATTEMPT: String(attempt) };
}

async function execute(
  argv: string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
  { run, log, timeoutMs, signal, lease, guard }: ActionContext,
): Promise<AttemptResult | 'interrupted'> {
  await guard.ready;
  if (signal.aborted) return 'interrupted';
  const [program = '', ...args] = argv;
  const mark = markOf(run, guard.workerId);
  const guarded = guard.watch(run, lease);
  try {
    const child = spawn(program, args, { cwd, env, detached: true, stdio: 'pipe' });
    const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
    const closed = once(child, 'close');
    closed.catch(() => {});
    const group = child.pid;
    // What could not be started may have no outputs to listen to; why is the error that this rejects with.
    if (group === undefined) return judge(...(await exited));
    guarded.leads(group);
    child.stdout.on('data', (data: Buffer) => log.write('stdout', data));
    child.stderr.on('data', (data: Buffer) => log.write('stderr', data));
    // A command need not read its input; then the pipe breaks, which is no failure.
    child.stdin.on('error', () => {});
    child.stdin.end(run.payload);

    const termination = terminationOf(group, mark);
    let interruption: unknown;
    const interrupt = () => {
      interruption = signal.reason;
      if (interruption === TIMED_OUT) {
        log.note(`The time limit of ${timeoutMs} ms is over: the command is told to end.`);
      }
      termination.begin(interruption === LOCK_LOST ? LOST_GRACE_MS : TERMINATION_GRACE_MS);
    };
    signal.addEventListener('abort', interrupt, { once: true });

    const [exitCode, exitSignal] = await exited;
    // Its outcome is certain from here on, whatever happens while its last output is read.
    signal.removeEventListener('abort', interrupt);
    // What the command left running in its group ends with it, and lets go of the outputs.
    await termination.complete();
    guarded.end();
    await withDeadline(closed, OUTPUT_DRAIN_MS).catch(() => {});
    child.stdout.destroy();
    child.stderr.destroy();
    if (interruption === TIMED_OUT) return judge(exitCode, exitSignal, timeoutMs);
    return interruption === undefined ? judge(exitCode, exitSignal) : 'interrupted';
  } finally {
    guarded.end();
  }
}

/** Ends everything that a command started: by TERM and, after a grace period, by KILL. */
function terminationOf(group: number, mark: RunMark) {
  let told: Promise<unknown> | undefined;
  let kill: NodeJS.Timeout | undefined;
  return {
    begin: (graceMs: number) => {
      signalGroup(group, 'SIGTERM');
      told = signalMarked([mark], 'SIGTERM', group);
      kill = setTimeout(() => signalGroup(group, 'SIGKILL'), graceMs);
    },
    /** Called when the command has exited. What left its group is looked for only if it was made to end. */
    complete: async () => {
      clearTimeout(kill);
      signalGroup(group, 'SIGKILL');
      if (told === undefined) return;
      await told;
      await killMarked([mark]);
    },
  };
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
