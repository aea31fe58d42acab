import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterAll, expect, test } from 'vitest';
import { expectError } from '../support/app.ts';
import { startApiProcess } from '../support/orc-process.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const STALLED = 2000;
const ROUNDS = 7;
const REQUESTS_PER_PHASE = 1500;
const CLIENTS = 4;

/** What src/api/app.ts sets, in milliseconds. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;
/** Node looks for clients whose time is over once a second; the rest is for 2,000 answers on a busy machine. */
const LATENESS_MS = 4000;

const store = openTestStore();
const api = await startApiProcess(store.env);
afterAll(async () => {
  await api.stop();
});
const { port } = new URL(api.url);

interface Stalled {
  socket: Socket;
  /** What it was answered, and milliseconds from its first byte to the end of the connection. */
  ended: Promise<{ text: string; durationMs: number }>;
}

async function stall(sent: string): Promise<Stalled> {
  const socket = connect(Number(port), '127.0.0.1');
  let text = '';
  socket.on('error', () => {});
  await once(socket, 'connect');
  const started = performance.now();
  socket.setEncoding('utf8').on('data', (data) => {
    text += data;
  });
  const ended = new Promise<{ text: string; durationMs: number }>((resolve) => {
    socket.once('close', () => resolve({ text, durationMs: performance.now() - started }));
  });
  socket.write(sent);
  return { socket, ended };
}

/** Half of them stall in their headers, half in their body. */
async function stallAll(apiKey: string): Promise<{ inHeaders: Stalled[]; inBody: Stalled[] }> {
  const inHeaders = 'POST /orc/api/automation-triggers/normal HTTP/1.1\r\nhost: stalled\r\nx-api-';
  const inBody = `${inHeaders}key: ${apiKey}\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"stalled":`;
  const open = async (sent: string) => {
    const connections: Stalled[] = [];
    while (connections.length < STALLED / 2) {
      connections.push(...(await Promise.all(Array.from({ length: 50 }, () => stall(sent)))));
    }
    return connections;
  };
  return { inHeaders: await open(inHeaders), inBody: await open(inBody) };
}

/** The 99th percentile of a phase's requests, in milliseconds. */
async function p99(agent: Agent, apiKey: string): Promise<number> {
  const times: number[] = [];
  let left = REQUESTS_PER_PHASE;
  const client = async () => {
    while (left > 0) {
      left -= 1;
      const started = performance.now();
      expect(await trigger(agent, apiKey)).toBe(202);
      times.push(performance.now() - started);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)] ?? Number.NaN;
}

function trigger(agent: Agent, apiKey: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const headers = { 'x-api-key': apiKey, 'content-type': 'application/json' };
    const url = `${api.url}/orc/api/automation-triggers/normal`;
    request(url, { method: 'POST', agent, headers }, (response) => {
      response.resume().once('end', () => resolve(response.statusCode));
    })
      .once('error', reject)
      .end('{}');
  });
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

test(`${STALLED} stalled connections leave the p99 of normal requests under twice what it is without them`, async () => {
  const apiKey = await createAutomation(store, 'normal');
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  await p99(agent, apiKey);
  const without: number[] = [];
  const against: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    without.push(await p99(agent, apiKey));
    const { inHeaders, inBody } = await stallAll(apiKey);
    against.push(await p99(agent, apiKey));
    const stalled = [...inHeaders, ...inBody];
    // They were there all the time.
    expect(stalled.filter(({ socket }) => socket.destroyed)).toEqual([]);
    for (const { socket } of stalled) socket.destroy();
    await Promise.all(stalled.map(({ ended }) => ended));
  }
  agent.destroy();

  const ratio = median(against) / median(without);
  console.log(
    `p99 with ${STALLED} stalled connections ${median(against).toFixed(2)} ms, without ${median(without).toFixed(2)} ms: ratio ${ratio.toFixed(2)} (medians of ${ROUNDS} interleaved rounds)`,
  );
  expect(ratio).toBeLessThan(2);
});

test('each stalled client is answered 408 in JSON when its time is over, and closed', async () => {
  const apiKey = await createAutomation(store, 'stalling');
  const { inHeaders, inBody } = await stallAll(apiKey);
  for (const [stalled, timeoutMs] of [
    [inHeaders, HEADERS_TIMEOUT_MS],
    [inBody, REQUEST_TIMEOUT_MS],
  ] as const) {
    const all = await Promise.all(stalled.map(({ ended }) => ended));
    for (const { text } of all) expectTimeout(text);
    const times = all.map(({ durationMs }) => durationMs);
    const [fastest, slowest] = [Math.min(...times), Math.max(...times)];
    console.log(
      `${all.length} answers 408 after ${(fastest / 1000).toFixed(1)} to ${(slowest / 1000).toFixed(1)} s`,
    );
    expect(fastest).toBeGreaterThanOrEqual(timeoutMs - 100);
    expect(slowest).toBeLessThan(timeoutMs + LATENESS_MS);
  }
});

/** Holds the raw text of an answer against the contract. */
function expectTimeout(text: string): void {
  const [head = '', body = ''] = text.split('\r\n\r\n');
  const [statusLine = '', ...lines] = head.split('\r\n');
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]),
  );
  expectError({ statusCode: Number(statusLine.split(' ')[1]), headers, body }, 408, 'request_timeout');
  expect(headers['connection']).toBe('close');
  expect(headers['content-length']).toBe(String(Buffer.byteLength(body)));
}
