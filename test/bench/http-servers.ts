import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { NODE_FLAGS } from '../../src/local/child.ts';
import { freePort } from '../../src/local/free-port.ts';
import { onPath } from '../../src/local/programs.ts';
import type { BenchContext } from './part.ts';

/** The executable as users get it, seen from this file's place in `.bench/test/bench`. */
const ORC = fileURLToPath(new URL('../../../dist/orc.js', import.meta.url));

const START_DEADLINE_MS = 30_000;
const STOP_DEADLINE_MS = 5000;
const POLL_MS = 50;

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

/** A peer that is not installed is skipped, for a reason that the reader is told. */
export type Peer = { server: Server } | { missing: string };

/** `orc api` as in production, its log thrown away, except that it refuses nobody for having too much to do. */
export async function startOrcApi(context: BenchContext, env: NodeJS.ProcessEnv): Promise<Server> {
  const generous = { MAX_QUEUED_RUNS: '1000000000', ACCEPT_TIMEOUT_MS: '60000' };
  return startNode(context, [...NODE_FLAGS, ORC, 'api'], { ...generous, ...env });
}

/** @param answers what it answers to GET requests for `/health`, `/html` and `/markdown` */
export async function startNoOp(
  context: BenchContext,
  answers: { health?: string; html?: string; markdown?: string } = {},
): Promise<Server> {
  const directory = join(context.directory, 'answers');
  await mkdir(directory, { recursive: true });
  const { health = '', html = '', markdown = '' } = answers;
  for (const [file, text] of Object.entries({ health, html, markdown })) {
    await writeFile(join(directory, file), text);
  }
  return startNode(context, [...NODE_FLAGS, serverFile('no-op')], { ANSWERS: directory });
}

export async function startHandWritten(context: BenchContext, redisUrl: string): Promise<Server> {
  return startNode(context, [...NODE_FLAGS, serverFile('hand-written')], { REDIS_URL: redisUrl });
}

export async function startEnqueueOnly(context: BenchContext, redisUrl: string): Promise<Server> {
  return startNode(context, [...NODE_FLAGS, serverFile('enqueue-only')], { REDIS_URL: redisUrl });
}

/** adnanh/webhook: https://github.com/adnanh/webhook. It checks a header and starts `/bin/true`, which it does not wait for. */
export async function startWebhook(context: BenchContext, apiKey: string): Promise<Peer> {
  const [program] = await onPath(process.env, 'webhook');
  if (!program) return { missing: 'adnanh/webhook is left out: there is no `webhook` on the PATH' };
  const hooks = join(context.directory, 'hooks.json');
  const parameter = { source: 'header', name: 'X-Api-Key' };
  await writeFile(
    hooks,
    JSON.stringify([
      {
        id: 'bench',
        'execute-command': '/bin/true',
        'response-message': '{"status":"queued"}',
        'success-http-response-code': 202,
        'trigger-rule': { match: { type: 'value', value: apiKey, parameter } },
      },
    ]),
  );
  const port = await freePort();
  const args = ['-hooks', hooks, '-ip', '127.0.0.1', '-port', `${port}`];
  return { server: await start(context, program, args, port, {}) };
}

/** Node-RED: https://nodered.org. A flow of two nodes that answers, and starts nothing. */
export async function startNodeRed(context: BenchContext): Promise<Peer> {
  const [program] = process.env['NODE_RED']
    ? [process.env['NODE_RED']]
    : await onPath(process.env, 'node-red');
  if (!program) {
    return { missing: 'Node-RED is left out: NODE_RED is not set and there is no `node-red` on the PATH' };
  }
  const directory = join(context.directory, 'node-red');
  await mkdir(directory, { recursive: true });
  const flow = join(directory, 'flows.json');
  const z = 'tab';
  const at = { x: 0, y: 0 };
  await writeFile(
    flow,
    JSON.stringify([
      { id: z, type: 'tab', label: 'bench' },
      {
        id: 'in',
        z,
        type: 'http in',
        url: '/trigger',
        method: 'post',
        upload: false,
        ...at,
        wires: [['set']],
      },
      {
        ...{ id: 'set', z, type: 'change', ...at, wires: [['out']] },
        rules: [{ t: 'set', p: 'payload', pt: 'msg', to: '{"status":"queued"}', tot: 'json' }],
      },
      { id: 'out', z, type: 'http response', statusCode: '202', headers: {}, ...at, wires: [] },
    ]),
  );
  const settings = join(directory, 'settings.cjs');
  await writeFile(
    settings,
    "module.exports = { uiHost: '127.0.0.1', httpAdminRoot: false, logging: { console: { level: 'off' } } };\n",
  );
  const port = await freePort();
  const args = ['--userDir', directory, '--settings', settings, '--port', `${port}`, flow];
  const server = await start(context, program, args, port, { HOME: directory });
  // It listens before its flows are there.
  for (const until = Date.now() + START_DEADLINE_MS; Date.now() < until; await sleep(POLL_MS)) {
    const answer = await fetch(`${server.url}/trigger`, { method: 'POST' });
    if (answer.status === 202) return { server };
  }
  throw new Error('Node-RED did not start its flow');
}

function serverFile(name: string): string {
  return fileURLToPath(new URL(`./servers/${name}.js`, import.meta.url));
}

/** A program of Node that says over IPC when it is ready. */
async function startNode(context: BenchContext, args: string[], env: NodeJS.ProcessEnv): Promise<Server> {
  const port = await freePort();
  return start(context, process.execPath, args, port, { PORT: `${port}`, ...env }, true);
}

/** Starts a server whose output is thrown away, waits until it is ready, and has it stopped at the end of the part. */
async function start(
  context: BenchContext,
  program: string,
  args: string[],
  port: number,
  env: NodeJS.ProcessEnv,
  saysReady = false,
): Promise<Server> {
  const { PATH, HOME } = process.env;
  const child = spawn(program, args, {
    env: { PATH, HOME, NODE_ENV: 'production', ...env },
    stdio: ['ignore', 'ignore', 'inherit', ...(saysReady ? (['ipc'] as const) : [])],
  });
  running.add(child);
  context.defer(() => stop(child).finally(() => running.delete(child)));
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`${program} ${args.join(' ')} ended with ${code} before it was ready`);
  });
  const late = sleep(START_DEADLINE_MS, undefined, { ref: false }).then(() => {
    throw new Error(`${program} ${args.join(' ')} was not ready in time`);
  });
  ended.catch(() => undefined);
  late.catch(() => undefined);
  await Promise.race([saysReady ? once(child, 'message') : untilListening(port), ended, late]);
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

async function untilListening(port: number): Promise<void> {
  for (;;) {
    const socket = connect({ host: '127.0.0.1', port });
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isOpen) return;
    await sleep(POLL_MS);
  }
}
