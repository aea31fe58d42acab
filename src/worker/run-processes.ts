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

/** States of a process that is stopped, or has ended; none when it is gone. */
const STOPPED = /^[TtZX]?$/;

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
  let count = 0;
  for (const [index, pid] of processIds().entries()) {
    if (index % PORTION === PORTION - 1) await setImmediate();
    const environment = environmentOf(pid);
    if (!marks.some((mark) => isMarked(environment, mark))) continue;
    if (exceptGroup !== undefined && factsOf(pid).group === exceptGroup) continue;
    if (trySignal(Number(pid), signal)) count += 1;
  }
  return count;
}

interface ProcessFacts {
  pid: number;
  parent: number;
  group: number;
  /** The letter of its state, see proc(5). */
  state: string;
}

/**
 * Stops a process group, the processes with a mark and all that descend from these, also with another environment, until
 * none of them executes. On Linux; elsewhere only the group.
 *
 * @returns the ids of those that are neither in the group nor marked; as long as they are stopped, no other process has them
 */
export async function stopAll(group: number, mark: RunMark): Promise<number[]> {
  signalGroup(group, 'SIGSTOP');
  if (process.platform !== 'linux') return [];
  let others: ProcessFacts[] = [];
  for (let pass = 0; pass < MAX_PASSES; pass++) {
    if (pass > 0) await setTimeout(PASS_MS);
    const family = await familyOf(group, mark);
    others = family.descendants;
    const executing = [...family.known, ...others].filter(({ state }) => !STOPPED.test(state));
    if (executing.length === 0) break;
    for (const { pid } of executing) signalProcess(pid, 'SIGSTOP');
  }
  return others.map(({ pid }) => pid);
}

/** Sends a signal to a process; one that is gone needs none. */
export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  trySignal(pid, signal);
}

/** The members of a group and the processes with a mark, and all others that descend from these. */
async function familyOf(group: number, mark: RunMark) {
  const family = new Map<number, ProcessFacts>();
  const others: ProcessFacts[] = [];
  for (const [index, pid] of processIds().entries()) {
    if (index % PORTION === PORTION - 1) await setImmediate();
    const facts = factsOf(pid);
    if (facts.group === group || isMarked(environmentOf(pid), mark)) family.set(facts.pid, facts);
    else others.push(facts);
  }
  const known = [...family.values()];
  for (let before = -1; before < family.size; ) {
    before = family.size;
    for (const each of others) if (family.has(each.parent)) family.set(each.pid, each);
  }
  return { known, descendants: [...family.values()].slice(known.length) };
}

/** What a process began with, each variable between two NUL characters. */
function environmentOf(pid: string): string {
  return `\0${read(`/proc/${pid}/environ`)}`;
}

function isMarked(environment: string, mark: RunMark): boolean {
  return Object.entries(mark).every(([name, value]) => environment.includes(`\0${name}=${value}\0`));
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

function factsOf(pid: string): ProcessFacts {
  const stat = read(`/proc/${pid}/stat`);
  // They follow the program's name in parentheses, which may itself hold spaces and parentheses.
  const [state = '', parent, group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return { pid: Number(pid), parent: Number(parent), group: Number(group), state };
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
