import { Agent, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect } from 'vitest';
import { startApiProcess } from './orc-process.ts';
import type { openTestStore } from './store.ts';

const CONNECTIONS = 16;
const GRACE_MS = 5000;
/** Answers before SIGTERM, over all connections. */
const WARM_ANSWERS = 200;
/** Between the exit of the process and the moment in which its parent hears of it, in milliseconds. */
const EXIT_NOTICE_MS = 500;

interface Sent {
  statusCode?: number;
  connection?: string | undefined;
  runId?: string;
  /** Code of the error that came instead of an answer. */
  error?: string;
}

export interface Shutdown {
  answers: number;
  /** Answered during shutdown, with `connection: close`. */
  closingAnswers: number;
  durationMs: number;
}

/**
 * One round: an API process under load over keep-alive connections gets SIGTERM, and every promise about that is
 * checked. Returns figures.
 */
export async function shutDownUnderLoad(
  store: ReturnType<typeof openTestStore>,
  slug: string,
  apiKey: string,
): Promise<Shutdown> {
  const api = await startApiProcess({ ...store.env, SHUTDOWN_GRACE_MS: String(GRACE_MS) });
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const url = `${api.url}/orc/api/automation-triggers/${slug}`;
  const all: Sent[] = [];

  const clients = Array.from({ length: CONNECTIONS }, async () => {
    for (;;) {
      const sent = await send(url, agent, apiKey);
      all.push(sent);
      if (sent.error !== undefined) return;
    }
  });
  await expect.poll(() => all.length, { interval: 5, timeout: 20_000 }).toBeGreaterThan(WARM_ANSWERS);

  const started = performance.now();
  const exited = api.stop('SIGTERM');
  await Promise.all(clients);
  expect(await codeOfConnect(Number(new URL(api.url).port))).toBe('ECONNREFUSED');
  expect(await exited).toBe(0);
  const durationMs = performance.now() - started;
  agent.destroy();
  expect(durationMs).toBeLessThan(GRACE_MS + EXIT_NOTICE_MS);

  const answered = all.filter(({ error }) => error === undefined);
  const closing = answered.filter(({ connection }) => connection === 'close');
  // Each client goes on until a new connection is refused, and nothing but that ever fails.
  expect(all.flatMap(({ error }) => error ?? [])).toEqual(Array(CONNECTIONS).fill('ECONNREFUSED'));
  expect(new Set(answered.map(({ statusCode }) => statusCode))).toEqual(new Set([202]));
  expect(closing.length).toBe(CONNECTIONS);

  const accepted = answered.map(({ runId }) => runId);
  const queued = await store.redis.lrange(`${store.keys.queuePrefix}:runs:wait`, 0, -1);
  expect(queued.sort()).toEqual(accepted.sort());
  await store.redis.del(`${store.keys.queuePrefix}:runs:wait`);
  return { answers: answered.length, closingAnswers: closing.length, durationMs };
}

function send(url: string, agent: Agent, apiKey: string): Promise<Sent> {
  return new Promise((resolve) => {
    const headers = { 'x-api-key': apiKey, 'content-type': 'application/json' };
    const sending = request(url, { method: 'POST', agent, headers }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (text) => {
        body += text;
      });
      response.once('error', (error: NodeJS.ErrnoException) => resolve({ error: String(error.code) }));
      response.once('end', () => {
        const { statusCode = 0, headers: fields } = response;
        const { runId } = JSON.parse(body) as { runId: string };
        resolve({ statusCode, connection: fields.connection, runId });
      });
    });
    sending.once('error', (error: NodeJS.ErrnoException) => resolve({ error: String(error.code) }));
    sending.end('{"load":true}');
  });
}

/** Why a new connection fails, or the address it got. */
function codeOfConnect(port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code));
    socket.once('connect', () => {
      resolve(JSON.stringify(socket.address() as AddressInfo));
      socket.destroy();
    });
  });
}
