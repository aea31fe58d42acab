import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { NODE_FLAGS } from '../../src/local/child.ts';

/** The executable as users get it, seen from this file's place in `.bench/test/bench`. */
export const ORC = fileURLToPath(new URL('../../../dist/orc.js', import.meta.url));

/** The kernel counts CPU time in hundredths of a second for /proc/<pid>/stat, whatever its own clock does. */
const MS_PER_TICK = 10;

/** A process that is ready, or was once. It ends by itself when this process is gone. */
export interface BenchProcess {
  pid: number;
  /** Asks it to end and waits until it has. Idempotent. */
  stop(): Promise<void>;
}

/** A process, and the first thing that it sends, which rejects when it ends before it has sent any. */
export interface Launched {
  process: BenchProcess;
  firstMessage: Promise<unknown>;
}

/** Starts a process of orc, its log going nowhere. Its first message says that it is ready. */
export function launchOrc(kind: 'api' | 'worker' | 'console', env: NodeJS.ProcessEnv): Launched {
  return launch([...NODE_FLAGS, ORC, kind], env);
}

/**
 * Starts a script of this folder with its settings as the argument.
 *
 * @param name without its ending
 */
export function launchScript(name: string, settings: object): Launched {
  const script = fileURLToPath(new URL(`./${name}.js`, import.meta.url));
  const { PATH, HOME } = process.env;
  return launch([script, JSON.stringify(settings)], { PATH, HOME });
}

function launch(args: string[], env: NodeJS.ProcessEnv): Launched {
  // A process group of its own, so that Ctrl-C reaches this process only, whose end ends the others.
  const child = spawn(process.execPath, args, {
    env,
    detached: true,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const exited = once(child, 'exit');
  const ended = exited.then(([code, signal]) => {
    throw new Error(`${args.join(' ')} ended: ${signal ?? `exit code ${code}`}`);
  });
  const said = once(child, 'message').then(([message]) => message as unknown);
  const firstMessage = Promise.race([said, ended]);
  firstMessage.catch(() => undefined);
  return {
    process: {
      pid: Number(child.pid),
      stop: async () => {
        if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
        await exited;
      },
    },
    firstMessage,
  };
}

/** CPU time that a process has used so far, its ended children's not included, in milliseconds. Linux only. */
export function cpuMs(pid: number): number {
  const [own, ownOfSystem] = cpuTimesMs(pid);
  return own + ownOfSystem;
}

/** The same with that of its ended children. */
export function cpuMsWithChildren(pid: number): number {
  return cpuTimesMs(pid).reduce((sum, each) => sum + each);
}

function cpuTimesMs(pid: number): [number, number, number, number] {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The name, in parentheses, is the second field, and may hold spaces (man 5 proc).
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const at = (index: number) => Number(fields[index]) * MS_PER_TICK;
  return [at(11), at(12), at(13), at(14)];
}

/** Memory that a process has in use, in MB of 10⁶ bytes. Linux only. */
export function rssMb(pid: number): number {
  const [, kib] = /^VmRSS:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return (Number(kib) * 1024) / 1e6;
}

/** The processes that a process has started and that are there still. Linux only. */
export function childrenOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return children === '' ? [] : children.split(' ').map(Number);
}
