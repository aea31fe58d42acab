import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { withDeadline } from '../../../core/deadline.ts';
import type { GuardedCommand } from '../../guard/guard.ts';
import type { OutputLog } from '../../output-log.ts';
import { type RunMark, signalGroup, signalMarked, signalProcess, stopAll } from '../../run-processes.ts';
import { OUTPUT_DRAIN_MS, terminationOf } from '../program.ts';

export interface AgentProcess {
  stdin: ChildProcessWithoutNullStreams['stdin'];
  stdout: ChildProcessWithoutNullStreams['stdout'];
  /** How it ended, as the end of a sentence: "exited with code 1". */
  exited: Promise<string>;
  /** Stops everything that it started, so that nothing changes while its work is judged and taken. */
  freeze(): Promise<void>;
  /** Lets it go on. */
  thaw(): Promise<void>;
  /** Ends it and everything that it started, by TERM and, after a grace period, by KILL. Idempotent. */
  end(graceMs: number): Promise<void>;
}

/**
 * Starts an agent in a process group of its own; its standard error goes to the log.
 *
 * @throws when it cannot be started
 */
export async function startAgent(
  argv: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv },
  mark: RunMark,
  guarded: GuardedCommand,
  log: Pick<OutputLog, 'write'>,
): Promise<AgentProcess> {
  const [program = '', ...args] = argv;
  const child = spawn(program, args, { ...options, detached: true, stdio: 'pipe' });
  const ended = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  const closed = once(child, 'close');
  closed.catch(() => undefined);
  const group = child.pid;
  if (group === undefined) {
    await ended;
    throw new Error('it has no process id');
  }
  guarded.leads(group);
  child.stderr.on('data', (data: Buffer) => log.write('stderr', data));
  child.stdin.on('error', () => undefined);
  child.stdout.on('error', () => undefined);
  const exited = ended.then(([code, signal]) =>
    signal === null ? `exited with code ${code}` : `was ended by ${signal}`,
  );
  const termination = terminationOf(group, mark);
  /** What else is stopped while the agent is. */
  let stopped: number[] = [];
  const goOn = async () => {
    signalGroup(group, 'SIGCONT');
    await signalMarked([mark], 'SIGCONT', group);
  };
  let ending: Promise<void> | undefined;
  return {
    stdin: child.stdin,
    stdout: child.stdout,
    exited,
    freeze: async () => {
      stopped = await stopAll(group, mark);
    },
    thaw: async () => {
      for (const pid of stopped) signalProcess(pid, 'SIGCONT');
      stopped = [];
      await goOn();
    },
    end: (graceMs) => {
      ending ??= (async () => {
        child.stdin.end();
        termination.begin(graceMs);
        // What is stopped gets its signal when it goes on.
        for (const pid of stopped) signalProcess(pid, 'SIGKILL');
        await goOn();
        await ended;
        await termination.complete();
        await withDeadline(closed, OUTPUT_DRAIN_MS).catch(() => undefined);
        child.stdout.destroy();
        child.stderr.destroy();
      })();
      return ending;
    },
  };
}
