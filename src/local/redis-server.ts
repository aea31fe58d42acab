import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { mkdir, mkdtemp, open, readFile, realpath } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { RedisServer } from './find-redis-server.ts';
import { freePort } from './free-port.ts';

const START_TIMEOUT_MS = 10_000;
const LOADING_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 10_000;
const ANSWER_TIMEOUT_MS = 1000;
const POLL_MS = 20;

/** Room for the path in a socket's address, less its final NUL; macOS has the smallest. */
const MAX_SOCKET_PATH_BYTES = 103;

const PERSISTENCE = {
  /** Every acknowledged write survives a loss of power. */
  always: ['--appendonly', 'yes', '--appendfsync', 'always'],
  /** A loss of power costs up to about a second of writes; a crash of Redis costs none. */
  everysec: ['--appendonly', 'yes', '--appendfsync', 'everysec'],
  none: ['--appendonly', 'no'],
} as const;

export interface StartRedisServerOptions {
  /** From `findRedisServer`. */
  readonly server: RedisServer;
  /** Made when missing. Holds the data, `redis.log`, `redis.pid` and the socket. */
  readonly dataDir: string;
  readonly persistence: keyof typeof PERSISTENCE;
  /** Where the socket is instead, in a folder that only this user may look into. */
  readonly socketDir?: string | undefined;
  /** Also listens on this port of 127.0.0.1, 0 for any free one; every user of the machine can use it. */
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
  /** Is in `dataDir` or `socketDir`, or in a temporary directory when that path is too long for a socket. */
  readonly socketPath: string;
  /** Settles when the server has ended, for whatever reason; never rejects. */
  readonly exited: Promise<Exit>;
  /** Ends the server, killing it after 10 s, and removes its socket. Idempotent; never rejects. */
  stop(): Promise<void>;
}

/**
 * Starts a Redis of one's own, without a configuration file, and waits until it answers: up to 10 s, or 60 s
 * while it loads its data. It has a process group of its own, so that a Ctrl-C in the terminal reaches only
 * its parent, which can close things in order. It ends with this process unless that one is killed by a
 * signal; the next start on the same `dataDir` then ends it first. The caller guarantees that no live process
 * uses `dataDir`.
 *
 * @throws an error of one sentence with the end of the server's log when it does not start
 */
export async function startRedisServer(options: StartRedisServerOptions): Promise<RunningRedisServer> {
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 });
  // One name per directory, by which a server of an earlier start is recognised.
  const dataDir = await realpath(options.dataDir);
  const pidFile = join(dataDir, 'redis.pid');
  const socketDir = options.socketDir ?? dataDir;
  await stopLeftover(pidFile, join(socketDir, 'redis.sock'));

  const port = options.listen?.port === 0 ? await freePort() : (options.listen?.port ?? 0);
  const { socketPath, temporaryDir } = await placeSocket(socketDir);
  const log = await open(join(dataDir, 'redis.log'), 'a', 0o600);
  const { size: logStart } = await log.stat();
  const args = [
    ...['--dir', dataDir, '--pidfile', pidFile, '--daemonize', 'no', '--logfile', ''],
    ...['--unixsocket', socketPath, '--unixsocketperm', '700', '--port', `${port}`, '--bind', '127.0.0.1'],
    ...['--maxmemory-policy', 'noeviction', '--save', '', ...PERSISTENCE[options.persistence]],
    // Keeps the arguments readable in the process list, where `isServerOf` looks for them.
    ...['--set-proc-title', 'no'],
  ];
  const { command, env } = options.server;
  // Redis makes its files as readable as the umask says, which only the child takes over.
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
  // Cleans up before anybody hears of the end, who may start the next server in the same place.
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
    // Rejects when the program cannot be run at all.
    if (child.pid === undefined) await once(child, 'spawn');
    await untilReady(socketPath, exited);
  } catch (error) {
    await stop();
    const tail = await lastLines(join(dataDir, 'redis.log'), logStart);
    const reason = error instanceof Error ? error.message : String(error);
    const ending = tail && `; its log ends with: ${tail}`;
    throw new Error(`Redis did not start: ${reason}${ending}`, { cause: error });
  } finally {
    await log.close();
  }
  const url = options.listen ? `redis://127.0.0.1:${port}` : socketPath;
  return { url, pid: Number(child.pid), socketPath, exited, stop };
}

/** @throws when the server ends or the time is over */
async function untilReady(socketPath: string, exited: Promise<Exit>): Promise<void> {
  const started = Date.now();
  let timeoutMs = START_TIMEOUT_MS;
  let exit: Exit | undefined;
  let last = 'no answer';
  const exitSeen = exited.then((result) => {
    exit = result;
  });
  while (!exit) {
    // Asked over the socket even when there is a port, where another server might answer.
    const reply = await ask(socketPath, 'PING').catch(() => undefined);
    if (reply === '+PONG') return;
    if (reply?.startsWith('-LOADING')) timeoutMs = LOADING_TIMEOUT_MS;
    last = reply ?? last;
    if (Date.now() - started > timeoutMs) throw new Error(`not ready after ${timeoutMs / 1000} s (${last})`);
    await Promise.race([delay(POLL_MS), exitSeen]);
  }
  throw new Error(`it ended with ${exit.signal ?? `exit code ${exit.code}`}`);
}

/** Ends the server that an earlier start left on these data, since two writing one AOF would corrupt it. */
async function stopLeftover(pidFile: string, socketPath: string): Promise<void> {
  const pid = Number.parseInt(await readFile(pidFile, 'utf8').catch(() => ''), 10);
  const isOurs = await isServerOf(pidFile, pid);
  const isAlive = async () =>
    (await isServerOf(pidFile, pid)) || (await ask(socketPath, 'PING').catch(() => undefined)) !== undefined;
  if (!(await isAlive())) return;

  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    if (isOurs) sendSignal(pid, signal);
    // One in another container can be reached by its socket only.
    else await ask(socketPath, 'SHUTDOWN').catch(() => undefined);
    for (const started = Date.now(); Date.now() - started < STOP_TIMEOUT_MS; await delay(POLL_MS)) {
      if (!(await isAlive())) return;
    }
  }
  throw new Error(`A Redis server that cannot be stopped uses ${socketPath}.`);
}

/** Tells the server of exactly this pid file from a process that got the same pid later. */
async function isServerOf(pidFile: string, pid: number): Promise<boolean> {
  if (!(pid > 0)) return false;
  const commandLine =
    process.platform === 'linux'
      ? // Empty for a zombie, which is gone for our purposes.
        await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
      : await promisify(execFile)('/bin/ps', ['-ww', '-o', 'command=', '-p', `${pid}`], { env: {} }).then(
          ({ stdout }) => stdout,
          () => '',
        );
  const hasPidFile = commandLine.replaceAll('\0', ' ').includes(` --pidfile ${pidFile} `);
  return hasPidFile && /(redis|valkey)-server/.test(commandLine);
}

/** Sends a command without arguments and returns the first line of the reply. */
function ask(socketPath: string, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath, () => socket.write(`${command}\r\n`));
    socket.setEncoding('utf8');
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy(new Error('no answer')));
    socket.once('data', (reply: string) => {
      resolve(reply.split('\r\n', 1)[0] ?? '');
      socket.destroy();
    });
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('the connection was closed')));
  });
}

async function placeSocket(folder: string): Promise<{ socketPath: string; temporaryDir?: string }> {
  const socketPath = join(folder, 'redis.sock');
  // ioredis takes what follows a question mark for options.
  const fits = Buffer.byteLength(socketPath) <= MAX_SOCKET_PATH_BYTES && !socketPath.includes('?');
  if (fits) return { socketPath };
  const temporaryDir = await mkdtemp(join(tmpdir(), 'orc-'));
  return { socketPath: join(temporaryDir, 'redis.sock'), temporaryDir };
}

/** Wrapper scripts may stand between us and Redis, hence the whole group. */
function signalGroup({ pid, exitCode, signalCode }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid !== undefined && exitCode === null && signalCode === null) sendSignal(-pid, signal);
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It ended a moment ago, or is another user's: whoever waits for its end finds out.
  }
}

/** The last lines of what was logged since `start`, in bytes, without their dates, on one line. */
async function lastLines(path: string, start: number): Promise<string> {
  const lines = (await readFile(path)).subarray(start).toString().trim().split('\n');
  return lines
    .filter((line) => !line.includes('WARNING Memory overcommit'))
    .slice(-4)
    .map((line) => line.replace(/^\d+:\w .*?\d\d:\d\d:\d\d\.\d+ [.*#-] /, ''))
    .join(' | ');
}
