import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { type FileHandle, mkdir, mkdtemp, open, readFile, realpath } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isSocketPath } from './data-folder.ts';
import type { RedisServer } from './find-redis-server.ts';
import { freePort } from './free-port.ts';

const START_TIMEOUT_MS = 10_000;
const LOADING_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 10_000;
const ANSWER_TIMEOUT_MS = 1000;
const POLL_MS = 20;

/** What Redis and Valkey log when the end of their AOF is missing. */
const CUT_AOF = '!!! Truncating the AOF';

const PERSISTENCE = {
  /** Every acknowledged write survives a power failure. */
  always: ['--appendonly', 'yes', '--appendfsync', 'always'],
  /** A power failure loses up to about a second of writes; a crash of Redis loses none. */
  everysec: ['--appendonly', 'yes', '--appendfsync', 'everysec'],
  none: ['--appendonly', 'no'],
} as const;

export interface StartRedisServerOptions {
  /** From `findRedisServer`. */
  readonly server: RedisServer;
  /** Created if missing. Holds the data, `redis.log`, `redis.pid` and the socket. */
  readonly dataDir: string;
  readonly persistence: keyof typeof PERSISTENCE;
  /** Folder of the socket, which only this user may enter. Default: `dataDir`. */
  readonly socketDir?: string | undefined;
  /** Also listen on this port of 127.0.0.1, 0 for any free one; every user of the machine can use it. */
  readonly listen?: { readonly port: number } | undefined;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface RunningRedisServer {
  /** For ioredis: the socket's path, or `redis://127.0.0.1:<port>` when a port was asked for. */
  readonly url: string;
  readonly pid: number;
  /** In `socketDir`, or in a temporary directory if that path is too long for a socket. */
  readonly socketPath: string;
  /** Resolves when the server has ended; never rejects. */
  readonly exited: Promise<Exit>;
  /** Stops the server, kills it after 10 s, and removes its socket. Idempotent; never rejects. */
  stop(): Promise<void>;
}

/**
 * Starts a private Redis without a configuration file and waits until it answers: up to 10 s, or 60 s while it loads its
 * data. It has its own process group: Ctrl-C in a terminal reaches only its parent, which shuts down in order. It ends with
 * this process, unless a signal kills this process; then the next start on the same `dataDir` stops it. The caller guarantees
 * that no live process uses `dataDir`.
 *
 * @throws an error of one sentence with the end of the server's log when it does not start
 */
export async function startRedisServer(options: StartRedisServerOptions): Promise<RunningRedisServer> {
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 });
  // The canonical path, by which `isServerOf` recognises a server of an earlier start.
  const dataDir = await realpath(options.dataDir);
  const pidFile = join(dataDir, 'redis.pid');
  const socketDir = options.socketDir ?? dataDir;
  await stopLeftover(pidFile, join(socketDir, 'redis.sock'));

  const port = options.listen?.port === 0 ? await freePort() : (options.listen?.port ?? 0);
  const { socketPath, temporaryDir } = await placeSocket(socketDir);
  const log = await open(join(dataDir, 'redis.log'), 'a+', 0o600);
  const { size: logStart } = await log.stat();
  const args = [
    ...['--dir', dataDir, '--pidfile', pidFile, '--daemonize', 'no', '--logfile', ''],
    ...['--unixsocket', socketPath, '--unixsocketperm', '700', '--port', `${port}`, '--bind', '127.0.0.1'],
    ...['--maxmemory-policy', 'noeviction', '--save', '', ...PERSISTENCE[options.persistence]],
    // Keeps the arguments in the process list, where `isServerOf` reads them.
    ...['--set-proc-title', 'no'],
  ];
  const { command, env } = options.server;
  // The child inherits this umask, so only this user can read Redis' files.
  const umask = process.umask(0o077);
  const child = spawn(command, args, { env, detached: true, stdio: ['ignore', log.fd, log.fd] });
  process.umask(umask);
  function removeSocket(): void {
    rmSync(temporaryDir ?? socketPath, { recursive: true, force: true });
  }
  function onProcessExit(): void {
    signalGroup(child, 'SIGTERM');
    removeSocket();
  }
  process.once('exit', onProcessExit);

  const ended = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    child.once('error', () => resolve({ code: null, signal: null }));
  });
  // Cleans up before callers learn of the end: they may start the next server in the same place.
  const exited = ended.then((exit) => {
    process.off('exit', onProcessExit);
    removeSocket();
    rmSync(pidFile, { force: true });
    return exit;
  });

  async function stop(): Promise<void> {
    signalGroup(child, 'SIGTERM');
    const kill = setTimeout(() => signalGroup(child, 'SIGKILL'), STOP_TIMEOUT_MS);
    await exited;
    clearTimeout(kill);
  }

  try {
    // Rejects when the program cannot be started.
    if (child.pid === undefined) await once(child, 'spawn');
    await untilReady(socketPath, exited);
    if ((await logSince(log, logStart)).includes(CUT_AOF)) await rewriteAof(socketPath, exited);
  } catch (error) {
    await stop();
    const tail = lastLines(await logSince(log, logStart));
    const reason = error instanceof Error ? error.message : String(error);
    const ending = tail && `; its log ends with: ${tail}`;
    throw new Error(`Redis did not start: ${reason}${ending}`, { cause: error });
  } finally {
    await log.close();
  }
  const url = options.listen ? `redis://127.0.0.1:${port}` : socketPath;
  return { url, pid: Number(child.pid), socketPath, exited, stop };
}

/** @throws when the server ends or is not ready in time */
async function untilReady(socketPath: string, exited: Promise<Exit>): Promise<void> {
  const started = Date.now();
  let timeoutMs = START_TIMEOUT_MS;
  let exit: Exit | undefined;
  let last = 'no answer';
  const exitSeen = exited.then((result) => {
    exit = result;
  });
  while (!exit) {
    // Over the socket, because another server might answer on the port.
    const reply = await ask(socketPath, 'PING').catch(() => undefined);
    if (reply === '+PONG') return;
    if (reply?.startsWith('-LOADING')) timeoutMs = LOADING_TIMEOUT_MS;
    last = reply ?? last;
    if (Date.now() - started > timeoutMs) throw new Error(`not ready after ${timeoutMs / 1000} s (${last})`);
    await Promise.race([delay(POLL_MS), exitSeen]);
  }
  throw new Error(`it ended with ${exit.signal ?? `exit code ${exit.code}`}`);
}

/**
 * Has the AOF written anew, without what is left of a script whose end is missing. A Redis that cuts off the end itself may
 * leave the script's first commands, and executes them at its next start (valkey-io/valkey#4342).
 */
async function rewriteAof(socketPath: string, exited: Promise<Exit>): Promise<void> {
  const reply = await ask(socketPath, 'BGREWRITEAOF');
  // Redis may have begun with it by itself.
  if (reply.startsWith('-') && !reply.includes('in progress'))
    throw new Error(`its AOF cannot be rewritten (${reply.slice(1)})`);
  let hasExited = false;
  const exitSeen = exited.then(() => {
    hasExited = true;
  });
  while (!hasExited) {
    const state = await ask(socketPath, 'INFO persistence').catch(() => '');
    if (/aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0/.test(state)) return;
    await Promise.race([delay(POLL_MS), exitSeen]);
  }
}

/** Stops a server that an earlier start left: two servers would corrupt the AOF. */
async function stopLeftover(pidFile: string, socketPath: string): Promise<void> {
  const pid = Number.parseInt(await readFile(pidFile, 'utf8').catch(() => ''), 10);
  const isOurs = await isServerOf(pidFile, pid);
  const isAlive = async () =>
    (await isServerOf(pidFile, pid)) || (await ask(socketPath, 'PING').catch(() => undefined)) !== undefined;
  if (!(await isAlive())) return;

  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    if (isOurs) sendSignal(pid, signal);
    // A server in another container is reachable only by its socket.
    else await ask(socketPath, 'SHUTDOWN').catch(() => undefined);
    for (const started = Date.now(); Date.now() - started < STOP_TIMEOUT_MS; await delay(POLL_MS)) {
      if (!(await isAlive())) return;
    }
  }
  throw new Error(`A Redis server that cannot be stopped uses ${socketPath}.`);
}

/** Whether the process is the server of this pid file, and not a later one with the same pid. */
async function isServerOf(pidFile: string, pid: number): Promise<boolean> {
  if (!(pid > 0)) return false;
  const commandLine =
    process.platform === 'linux'
      ? // Empty for a zombie, which counts as ended.
        await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
      : await promisify(execFile)('/bin/ps', ['-ww', '-o', 'command=', '-p', `${pid}`], { env: {} }).then(
          ({ stdout }) => stdout,
          () => '',
        );
  const hasPidFile = commandLine.replaceAll('\0', ' ').includes(` --pidfile ${pidFile} `);
  return hasPidFile && /(redis|valkey)-server/.test(commandLine);
}

/** Sends a command and returns the reply, as Redis writes it. */
function ask(socketPath: string, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath, () => socket.write(`${command}\r\n`));
    socket.setEncoding('utf8');
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy(new Error('no answer')));
    socket.once('data', (reply: string) => {
      resolve(reply.trim());
      socket.destroy();
    });
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('the connection was closed')));
  });
}

async function placeSocket(folder: string): Promise<{ socketPath: string; temporaryDir?: string }> {
  const socketPath = join(folder, 'redis.sock');
  if (isSocketPath(socketPath)) return { socketPath };
  const temporaryDir = await mkdtemp(join(tmpdir(), 'orc-'));
  return { socketPath: join(temporaryDir, 'redis.sock'), temporaryDir };
}

/** Signals the whole group, because a wrapper script may have started Redis. */
function signalGroup({ pid, exitCode, signalCode }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid !== undefined && exitCode === null && signalCode === null) sendSignal(-pid, signal);
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has just ended or belongs to another user; the caller waits for its end and finds out.
  }
}

/** @param start a byte offset */
function logSince(log: FileHandle, start: number): Promise<string> {
  return text(log.createReadStream({ start, autoClose: false }));
}

/** The end of the log of the Redis in a data folder, in one line; empty if it cannot be read. */
export async function endOfRedisLog(dataDir: string): Promise<string> {
  return lastLines(await readFile(join(dataDir, 'redis.log'), 'utf8').catch(() => ''));
}

/** The last lines of a log, without dates, joined into one line. */
function lastLines(log: string): string {
  return log
    .trim()
    .split('\n')
    .filter((line) => !line.includes('WARNING Memory overcommit'))
    .slice(-4)
    .map((line) => line.replace(/^\d+:\w .*?\d\d:\d\d:\d\d\.\d+ [.*#-] /, ''))
    .join(' | ');
}
