import { readdirSync, readFileSync } from 'node:fs';
import { setImmediate, setTimeout } from 'node:timers/promises';

/** Processes read in one turn of the event loop. */
const PORTION = 64;

/** Pause between two passes over all processes, in milliseconds. */
const PASS_MS = 30;

/** One pass misses a process that starts another and ends meanwhile. */
const EMPTY_PASSES = 2;

/** Gives up, after some seconds, on a process that hangs in the kernel and cannot be killed. */
const MAX_PASSES = 100;

/** The variables in the environment of a command by which the processes it started are recognised. */
export interface RunMark {
  /** The id of the worker process. */
  ORC_WORKER: string;
  /** Without a run and an attempt, all of the worker's. */
  ORC_RUN_ID?: string;
  ORC_ATTEMPT?: string;
}

/**
 * Kills the processes that commands started, also in another session or with another parent. They are found by the
 * environment they began with, in Linux' /proc; elsewhere none are found. It cannot end processes with another
 * environment, of another user (setuid), or that hide their environment (PR_SET_DUMPABLE, as ssh-agent does). Only a
 * container or a cgroup that ends as a whole (systemd's KillMode=control-group) contains those.
 */
export async function killMarked(marks: readonly RunMark[]): Promise<void> {
  let emptyPasses = 0;
  for (let pass = 0; pass < MAX_PASSES && emptyPasses < EMPTY_PASSES; pass++) {
    if (pass > 0) await setTimeout(PASS_MS);
    emptyPasses = (await signalMarked(marks, 'SIGKILL')) === 0 ? emptyPasses + 1 : 0;
  }
}

/**
 * @param exceptGroup a process group that has got the signal already
 * @returns how many processes with one of the marks got the signal, in one pass
 */
export async function signalMarked(
  marks: readonly RunMark[],
  signal: NodeJS.Signals,
  exceptGroup?: number,
): Promise<number> {
  if (process.platform !== 'linux' || marks.length === 0) return 0;
  const wanted = marks.map((mark) => Object.entries(mark).map(([name, value]) => `\0${name}=${value}\0`));
  let count = 0;
  for (const [index, pid] of processIds().entries()) {
    if (index % PORTION === PORTION - 1) await setImmediate();
    const environment = `\0${read(`/proc/${pid}/environ`)}`;
    const isMarked = wanted.some((variables) => variables.every((each) => environment.includes(each)));
    if (!isMarked || (exceptGroup !== undefined && groupOf(pid) === exceptGroup)) continue;
    if (trySignal(Number(pid), signal)) count += 1;
  }
  return count;
}

/** Sends a signal to a process group; one that is gone needs none. */
export function signalGroup(group: number, signal: NodeJS.Signals): void {
  trySignal(-group, signal);
}

function processIds(): string[] {
  try {
    return readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  } catch {
    // No file descriptors are left. The guard has its own, and looks as well.
    return [];
  }
}

function groupOf(pid: string): number {
  const stat = read(`/proc/${pid}/stat`);
  // State, parent and group follow the program's name in parentheses, which may itself hold spaces and parentheses.
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]);
}

/** Nothing when the process has ended or is another user's. */
function read(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}

function trySignal(target: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(target, signal);
  } catch {
    // ESRCH: it has ended.
    return false;
  }
}
