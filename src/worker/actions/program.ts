import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { INHERITED_VARIABLES, type Variables } from '../../core/actions/variables.ts';
import { withDeadline } from '../../core/deadline.ts';
import type { RunAttempt } from '../../core/run.ts';
import type { OutputLog } from '../output-log.ts';
import { killMarked, type RunMark, signalGroup, signalMarked } from '../run-processes.ts';
import type { ActionContext } from './action.ts';

// What all programs have in common that actions start.

/** Between the TERM and the KILL of a command that must end, in milliseconds. */
export const TERMINATION_GRACE_MS = 5000;

/** The same when the run is lost, and somebody else may soon execute it or does so already, in milliseconds. */
export const LOST_GRACE_MS = 1000;

/** After the command's exit its output is waited for this long, in milliseconds: an escaped process can hold it open. */
const OUTPUT_DRAIN_MS = 1000;

/** The files of an attempt, in its own folder. */
export interface AttemptFiles {
  payload: string;
  result: string;
  artifacts: string;
}

export function environmentOf(
  { env, passEnv }: Variables,
  environment: Readonly<NodeJS.ProcessEnv>,
  { run, guard }: ActionContext,
  files: AttemptFiles,
): NodeJS.ProcessEnv {
  const taken = [...INHERITED_VARIABLES, ...passEnv].map((name) => [name, environment[name]]);
  return {
    ...Object.fromEntries(taken.filter(([, value]) => value !== undefined)),
    ...env,
    ...markOf(run, guard.workerId),
    ORC_AUTOMATION: run.automation,
    ORC_PAYLOAD_FILE: files.payload,
    ORC_RESULT_FILE: files.result,
    ORC_ARTIFACTS_DIR: files.artifacts,
    ORC_ACCEPTED_AT: run.acceptedAt.toISOString(),
    ...(run.traceparent !== undefined && { TRACEPARENT: run.traceparent }),
    ...(run.tracestate !== undefined && { TRACESTATE: run.tracestate }),
  };
}

/** Says which variables of `--pass-env` the worker does not have. */
export function noteMissing(
  { env, passEnv }: Variables,
  environment: Readonly<NodeJS.ProcessEnv>,
  log: OutputLog,
  noun: string,
): void {
  const missing = passEnv.filter((name) => environment[name] === undefined && env[name] === undefined);
  if (missing.length === 0) return;
  log.note(
    `The worker does not have what --pass-env names: ${missing.join(', ')}. The ${noun} runs without.`,
  );
}

/** The part of the command's environment by which the processes that it starts are found again. */
export function markOf({ id, attempt }: RunAttempt, workerId: string): Required<RunMark> {
  return { ORC_WORKER: workerId, ORC_RUN_ID: id, ORC_ATTEMPT: String(attempt) };
}

/** A program that runs in a process group of its own. */
export interface Program {
  stdin: ChildProcessWithoutNullStreams['stdin'];
  stdout: ChildProcessWithoutNullStreams['stdout'];
  stderr: ChildProcessWithoutNullStreams['stderr'];
  /** The id of the process group. */
  group: number;
  /** With its exit code, or with the signal that ended it. */
  exited: Promise<[code: number | null, signal: NodeJS.Signals | null]>;
  /** Tells it and everything that it started to end: by TERM and, after this many milliseconds, by KILL. */
  terminate(graceMs: number): void;
  /** Called when it has exited: ends what it left in its group and, if it was told to end, what left the group. */
  endGroup(): Promise<void>;
  /** Called then: reads the rest of its output, which what escaped can hold open, for a moment. */
  drain(): Promise<void>;
}

/** @throws when it cannot be started */
export async function startProgram(
  argv: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv },
  mark: RunMark,
): Promise<Program> {
  const [file = '', ...args] = argv;
  const child = spawn(file, args, { ...options, detached: true, stdio: 'pipe' });
  const { stdin, stdout, stderr, pid: group } = child;
  const exited = once(child, 'exit') as Program['exited'];
  const closed = once(child, 'close');
  closed.catch(() => undefined);
  if (group === undefined) {
    // What could not be started exits with the error that says why.
    await exited;
    throw new Error('it has no process id');
  }
  // It need not read its input; then the pipe breaks, which is no failure.
  stdin.on('error', () => undefined);
  let told: Promise<unknown> | undefined;
  let kill: NodeJS.Timeout | undefined;
  return {
    stdin,
    stdout,
    stderr,
    group,
    exited,
    terminate: (graceMs) => {
      signalGroup(group, 'SIGTERM');
      told = signalMarked([mark], 'SIGTERM', group);
      kill = setTimeout(() => signalGroup(group, 'SIGKILL'), graceMs);
    },
    endGroup: async () => {
      clearTimeout(kill);
      signalGroup(group, 'SIGKILL');
      if (told === undefined) return;
      await told;
      await killMarked([mark]);
    },
    drain: async () => {
      await withDeadline(closed, OUTPUT_DRAIN_MS).catch(() => undefined);
      stdout.destroy();
      stderr.destroy();
    },
  };
}
