import type { GuardedCommand } from '../../guard/guard.ts';
import type { OutputLog } from '../../output-log.ts';
import { type RunMark, signalGroup, signalMarked, signalProcess, stopAll } from '../../run-processes.ts';
import { type Program, startProgram } from '../program.ts';

export interface AgentProcess extends Pick<Program, 'stdin' | 'stdout'> {
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
  const program = await startProgram(argv, options, mark);
  const { group, stdin, stdout, stderr } = program;
  guarded.leads(group);
  stderr.on('data', (data: Buffer) => log.write('stderr', data));
  stdout.on('error', () => undefined);
  const exited = program.exited.then(([code, signal]) =>
    signal === null ? `exited with code ${code}` : `was ended by ${signal}`,
  );
  /** What else is stopped while the agent is. */
  let stopped: number[] = [];
  const goOn = async () => {
    signalGroup(group, 'SIGCONT');
    await signalMarked([mark], 'SIGCONT', group);
  };
  let ending: Promise<void> | undefined;
  return {
    stdin,
    stdout,
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
        stdin.end();
        program.terminate(graceMs);
        // What is stopped gets its signal when it goes on.
        for (const pid of stopped) signalProcess(pid, 'SIGKILL');
        await goOn();
        await program.exited;
        await program.endGroup();
        await program.drain();
      })();
      return ending;
    },
  };
}
