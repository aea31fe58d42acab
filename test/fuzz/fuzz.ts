import { fork } from 'node:child_process';
import { on, once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { connect } from '../../src/store/connect.ts';
import { LogJudge } from '../support/log-judge.ts';
import { Fuzzer } from './fuzzer.ts';
import type { FromServer, Memory, ToServer } from './server.ts';
import { countRuns, deleteRuns, SERVICES } from './target.ts';

const CLIENTS = 48;
const EXCHANGES_PER_CLIENT = 200;
const PREFIX = 'fuzz';

/** The share of the time after which memory is looked at: by then caches are full and code is compiled. */
const WARM_UP_SHARE = 0.1;
/** Memory is compared between the first samples after the warm-up and the last ones, each over this share of the time. */
const COMPARED_SHARE = 0.1;
/** RSS may not grow by more than this share, if there was time enough to say so, in seconds. */
const MAX_GROWTH = 0.1;
const JUDGED_SECONDS = 600;

/** The process of the target has so long to say something, and to end, in milliseconds. */
const SERVER_TIMEOUT_MS = 20_000;

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string' } },
});
const seconds = Number(values.seconds);
const seed = Number(values.seed ?? Date.now() % 1_000_000_000);
if (!(seconds > 0) || !Number.isInteger(seed)) {
  console.error('usage: npm run fuzz -- [--seconds N] [--seed N]');
  process.exit(2);
}

const dataDir = await mkdtemp(join(tmpdir(), 'orc-fuzz-'));
const report = (message: string) => console.error(message);
const redisServer = await findRedisServer({ env: process.env, report });
const running = await startRedisServer({ server: redisServer, dataDir, persistence: 'none' });
const redis = connect(running.url, 'patient', () => undefined);
const server = fork(new URL('./server.js', import.meta.url), [running.url, PREFIX], {
  execArgv: ['--expose-gc'],
  stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
});
const judge = new LogJudge(SERVICES.length);
const log = { lines: 0, bytes: 0 };
for (const input of [server.stdout, server.stderr]) {
  if (input) createInterface({ input }).on('line', takeLine);
}
const ended = new AbortController();
server.once('exit', () => ended.abort());
try {
  process.exitCode = (await fuzz()) ? 0 : 1;
} finally {
  if (server.connected) {
    server.send('close' satisfies ToServer);
    const timer = setTimeout(() => {
      console.error('the server did not close');
      process.exitCode = 1;
      server.kill('SIGKILL');
    }, SERVER_TIMEOUT_MS);
    await once(server, 'exit');
    clearTimeout(timer);
  }
  redis.disconnect();
  await running.stop();
  await rm(dataDir, { recursive: true, force: true });
}
// At its own end, Node 20 can wait for ever, busily, for something about connections that were reset.
process.exit();

async function fuzz(): Promise<boolean> {
  const first = await heard();
  if (!('target' in first)) throw new Error('the server did not start');
  const fuzzer = await Fuzzer.create(first.target);
  const { tally } = fuzzer;
  console.log(`seed ${seed}, ${seconds} s, ${CLIENTS} clients`);

  const startedAt = performance.now();
  const elapsed = () => (performance.now() - startedAt) / 1000;
  let busySeconds = 0;
  // What clients who hung up at the end of a round had asked for may be accepted in the next one.
  let leftUnconfirmed = 0;
  const samples: { at: number; memory: Memory }[] = [];
  for (let round = 0; elapsed() < seconds && !tally.failure; round += 1) {
    const roundStartedAt = elapsed();
    const { accepted: acceptedBefore, unconfirmed: unconfirmedBefore } = tally;
    await fuzzer.round({
      // Scattered, so that neighbouring seeds share no client's.
      seed: Math.imul(seed, 0x9e3779b1) + round * CLIENTS,
      clients: CLIENTS,
      exchangesPerClient: EXCHANGES_PER_CLIENT,
    });
    busySeconds += elapsed() - roundStartedAt;
    const accepted = tally.accepted - acceptedBefore;
    const runs = await countRuns(redis, PREFIX);
    const unconfirmed = tally.unconfirmed - unconfirmedBefore;
    if (runs < accepted || runs > accepted + unconfirmed + leftUnconfirmed) {
      tally.failure ??= `round ${round}: ${accepted} runs were accepted and ${unconfirmed} perhaps, ${runs} exist`;
    }
    leftUnconfirmed = unconfirmed;
    if (judge.problem !== undefined) tally.failure ??= judge.problem;
    await deleteRuns(redis, PREFIX);
    samples.push({ at: elapsed(), memory: await askMemory() });
  }
  const warmedUpAt = seconds * WARM_UP_SHARE;
  const compared = seconds * COMPARED_SHARE;
  const warm = samples.filter(({ at }) => at >= warmedUpAt && at < warmedUpAt + compared);
  const end = samples.filter(({ at }) => at >= elapsed() - compared);
  const statuses = [...tally.statuses].sort(([left], [right]) => left - right);
  console.log(`requests   ${tally.requests}, ${Math.round(tally.requests / busySeconds)}/s`);
  console.log(`statuses   ${statuses.map(([status, count]) => `${status}: ${count}`).join(', ')}`);
  console.log(
    `hung up    ${tally.resets} clients; ${tally.finishes} closed their side and had their answers`,
  );
  const lineCount = `${log.lines} lines, ${megabytes(log.bytes)}`;
  console.log(`log        ${lineCount}, ${Math.round(log.lines / elapsed())} lines/s`);
  console.log(`accepted   ${tally.accepted} runs, and ${tally.unconfirmed} perhaps`);
  for (const part of ['rss', 'heapUsed', 'external'] as const) {
    const [before = 0, after = 0] = [warm, end].map((each) => median(each.map(({ memory }) => memory[part])));
    const growth = after / before - 1;
    const start =
      before > 0 ? `, ${megabytes(before)} after the warm-up: ${(growth * 100).toFixed(1)} %` : '';
    console.log(`${part.padEnd(10)} ${megabytes(after)} at the end${start}`);
    if (part === 'rss' && seconds >= JUDGED_SECONDS && growth > MAX_GROWTH)
      tally.failure ??= 'the process has grown';
  }
  console.log(tally.failure ? `FAILED (seed ${seed})\n${tally.failure}` : 'no counterexample');
  return tally.failure === undefined;
}

function takeLine(line: string): void {
  log.lines += 1;
  log.bytes += Buffer.byteLength(line);
  if (line.startsWith('{')) judge.take(JSON.parse(line));
  else judge.problem ??= `what is no line of a log: ${line}`;
}

async function askMemory(): Promise<Memory> {
  server.send('memory' satisfies ToServer);
  const answer = await heard();
  if (!('memory' in answer)) throw new Error('the server said something else');
  return answer.memory;
}

/** @throws when the server ends, or the time is over, and it has said nothing */
async function heard(): Promise<FromServer> {
  const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(SERVER_TIMEOUT_MS)]);
  for await (const [message] of on(server, 'message', { signal })) return message;
  throw new Error('the server has ended');
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_048_576).toFixed(1)} MiB`;
}

/** NaN where there is nothing. */
function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
