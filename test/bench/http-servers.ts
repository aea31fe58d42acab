import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { NODE_FLAGS } from '../../src/local/child.ts';
import { freePort } from '../../src/local/free-port.ts';
import type { BenchContext } from './part.ts';

/** The executable as users get it, seen from this file's place in `.bench/test/bench`. */
const ORC = fileURLToPath(new URL('../../../dist/orc.js', import.meta.url));

const START_DEADLINE_MS = 30_000;
const STOP_DEADLINE_MS = 5000;

/** Servers that end with this process at the latest. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** A server under test, in a process of its own. */
export interface Server {
  url: string;
  pid: number;
}

/** `orc api` as in production, its log thrown away, except that it refuses nobody for having too much to do. */
export async function startOrcApi(context: BenchContext, env: NodeJS.ProcessEnv): Promise<Server> {
  const generous = { MAX_QUEUED_RUNS: '1000000000', ACCEPT_TIMEOUT_MS: '60000' };
  return startNode(context, [...NODE_FLAGS, ORC, 'api'], { ...generous, ...env });
}

/** @param health what it answers to GET requests for `/health` */
export async function startNoOp(context: BenchContext, health = ''): Promise<Server> {
  return startNode(context, [...NODE_FLAGS, serverFile('no-op')], { HEALTH: health });
}

export async function startHandWritten(context: BenchContext, redisUrl: string): Promise<Server> {
  return startNode(context, [...NODE_FLAGS, serverFile('hand-written')], { REDIS_URL: redisUrl });
}

function serverFile(name: string): string {
  return fileURLToPath(new URL(`./servers/${name}.js`, import.meta.url));
}

/**
 * Starts a program of Node whose output is thrown away, waits until it says over IPC that it is ready, and has it stopped at
 * the end of the part.
 */
async function startNode(context: BenchContext, args: string[], env: NodeJS.ProcessEnv): Promise<Server> {
  const port = await freePort();
  const { PATH, HOME } = process.env;
  const child = spawn(process.execPath, args, {
    env: { PATH, HOME, NODE_ENV: 'production', PORT: `${port}`, ...env },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  running.add(child);
  context.defer(() => stop(child).finally(() => running.delete(child)));
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`${args.join(' ')} ended with ${code} before it was ready`);
  });
  const late = sleep(START_DEADLINE_MS, undefined, { ref: false }).then(() => {
    throw new Error(`${args.join(' ')} was not ready in time`);
  });
  ended.catch(() => undefined);
  late.catch(() => undefined);
  await Promise.race([once(child, 'message'), ended, late]);
  return { url: `http://127.0.0.1:${port}`, pid: Number(child.pid) };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  const kill = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
  await exited;
  clearTimeout(kill);
}
