import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { withDeadline } from '../../core/deadline.ts';
import { PACKAGE_ROOT } from '../../core/package-root.ts';
import type { RunAttempt } from '../../core/run.ts';
import type { Logger } from '../../logger.ts';
import type { Lease } from '../lease.ts';

/** Compiled, as Node runs it; the sources are not. */
const SCRIPT = fileURLToPath(new URL('dist/guard-process.js', PACKAGE_ROOT));

/** The guard needs little memory; without limits V8 would take more. */
const NODE_FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=32'];

/** The guard is told this often how leases have moved on, in milliseconds. */
const REPORT_MS = 1000;

/** Pauses before the guard is started again, in milliseconds: the first, and the longest when it ends each time. */
const RESTART_MS = 500;
const LONGEST_RESTART_MS = 30_000;

/** A guard that lived so long, in milliseconds, can be started. */
const STEADY_MS = 60_000;

/** How much a guard that does not read may have waiting, in bytes, before it is replaced. */
const MAX_UNREAD_BYTES = 1024 * 1024;

/** How long the guard's end is waited for, in milliseconds. It goes on by itself until all commands have ended. */
const CLOSE_MS = 2000;

/** How long the guard's first word is waited for, in milliseconds: a worker without a guard still works. */
const START_MS = 5000;

/** Guarantees that commands end when this worker process dies or freezes. */
export interface Guard {
  /** What every command's environment holds as ORC_WORKER. */
  workerId: string;
  /** Resolves when signals to all processes around the worker no longer end the guard, or when it cannot be started. */
  ready: Promise<unknown>;
  /** Has the guard remove a folder when the worker and its commands have ended. */
  removeAtEnd(folder: string): void;
  /** To be called before the command is started, so that the guard knows of every command. */
  watch(run: RunAttempt, lease: Lease): GuardedCommand;
  /** Ends the guard, and whatever commands left running. Idempotent. */
  close(): Promise<void>;
}

export interface GuardedCommand {
  /** The command has started, and leads this process group. */
  leads(group: number): void;
  /** The command and its group have ended; the guard looks for what else it left. */
  end(): void;
}

interface Watched {
  /** Run and attempt, as the guard is told of them. */
  id: string;
  lease: Lease;
  toldEndsAt: number;
  group?: number;
}

/**
 * Starts the guard: one process beside this one, in a session of its own, told over a pipe which commands there are.
 *
 * When this process dies, the kernel closes the pipe, but not before a command that is just being started has its
 * environment: until then it holds the pipe open itself. The guard then kills the commands' process groups and whatever
 * else has the worker's mark, see `run-processes.ts`. When this process is frozen, it cannot extend its leases, and the
 * guard ends its commands while no other worker executes their runs yet. Leases are compared by the machine's clock, so
 * that a clock put forward ends runs in progress.
 *
 * A guard that ends is replaced. Not covered is that both are killed at the same moment, or the new guard while Node
 * starts.
 */
export function startGuard(workerId: string, logger: Pick<Logger, 'warn'>): Guard {
  const watched = new Set<Watched>();
  const folders = new Set<string>();
  let ready: Promise<unknown> | undefined;
  let child: ChildProcess;
  let exited: Promise<unknown>;
  let restart: NodeJS.Timeout | undefined;
  let pauseMs = RESTART_MS;
  let closing: Promise<void> | undefined;

  const tell = (...words: unknown[]) => {
    // There is no pipe when the guard could not be started, for want of file descriptors for instance.
    const pipe = child.stdin;
    if (!pipe || pipe.destroyed) return;
    pipe.write(`${words.join(' ')}\n`);
    if (pipe.writableLength > MAX_UNREAD_BYTES) child.kill('SIGKILL');
  };
  const tellLease = (each: Watched) => {
    each.toldEndsAt = each.lease.endsAt;
    tell('lease', each.id, each.toldEndsAt);
  };
  const tellFolder = (folder: string) => tell('folder', encodeURIComponent(folder));
  const start = () => {
    const startedAt = Date.now();
    const started = spawn(process.execPath, [...NODE_FLAGS, SCRIPT, workerId], {
      cwd: '/',
      env: {},
      detached: true,
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    child = started;
    const firstWord = firstWordOf(child);
    ready ??= firstWord;
    // The guard's exit tells the same.
    child.stdin?.on('error', () => undefined);
    exited = once(child, 'exit').then(
      ([code, signal]) => ({ code, signal }),
      (err: unknown) => ({ err }),
    );
    void exited.then((how) => {
      started.stdin?.destroy();
      if (closing !== undefined) return;
      logger.warn(how, 'the guard has ended and is started again');
      if (Date.now() - startedAt > STEADY_MS) pauseMs = RESTART_MS;
      restart = setTimeout(start, pauseMs);
      pauseMs = Math.min(pauseMs * 2, LONGEST_RESTART_MS);
    });
    for (const folder of folders) tellFolder(folder);
    for (const each of watched) {
      tellLease(each);
      if (each.group !== undefined) tell('group', each.id, each.group);
    }
  };
  start();
  const report = setInterval(() => {
    for (const each of watched) if (each.lease.endsAt !== each.toldEndsAt) tellLease(each);
  }, REPORT_MS);
  const close = async () => {
    clearInterval(report);
    clearTimeout(restart);
    child.stdin?.end();
    await withDeadline(exited, CLOSE_MS).catch(() => child.unref());
  };

  return {
    workerId,
    ready: Promise.resolve(ready),
    removeAtEnd: (folder) => {
      folders.add(folder);
      tellFolder(folder);
    },
    watch: ({ id, attempt }, lease) => {
      const each: Watched = { id: `${id} ${attempt}`, lease, toldEndsAt: 0 };
      watched.add(each);
      tellLease(each);
      return {
        leads: (group) => {
          each.group = group;
          tell('group', each.id, group);
        },
        end: () => {
          if (watched.delete(each)) tell('end', each.id);
        },
      };
    },
    close: () => {
      closing ??= close();
      return closing;
    },
  };
}

/** Resolves with the first thing that a guard says, or when it cannot. */
async function firstWordOf(guard: ChildProcess): Promise<void> {
  const { stdout } = guard;
  if (!stdout) return;
  const word = new Promise((resolve) => stdout.once('data', resolve).once('close', resolve));
  await withDeadline(word, START_MS).catch(() => undefined);
  stdout.destroy();
}
