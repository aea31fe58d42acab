import { readFileSync } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import autocannon from 'autocannon';
import { freePort } from '../../../src/local/free-port.ts';
import type { BenchContext, Part, Row, Table } from '../part.ts';
import { type BenchProcess, childrenOf, cpuMs, launchOrc, launchScript, rssMb } from '../runs-process.ts';
import type { ReceiverReady } from '../runs-receiver.ts';
import { PAYLOAD, Stage, type Target } from '../runs-stage.ts';

/** The package, seen from this file's place in `.bench/test/bench/parts`. */
const ROOT = fileURLToPath(new URL('../../../../', import.meta.url));

const CONNECTIONS = 32;

/** How often a starting process is looked at, and the memory of one under load, in milliseconds. */
const START_POLL_MS = 2;
const MEMORY_POLL_MS = 50;

/** What stat calls a block, in bytes. */
const BLOCK_BYTES = 512;

/** The largest packages are named. */
const NAMED_PACKAGES = 8;

export const start: Part = {
  name: 'start',
  summary: 'from exec to the first 200, memory, size of the installed production dependencies',
  run: async (context) => [
    process.platform === 'linux'
      ? await startsOf(context)
      : { title: 'Start', rows: [], remarks: ['Skipped: CPU times and memory are read from /proc.'] },
    await sizeOfDependencies(),
  ],
};

async function startsOf(context: BenchContext): Promise<Table> {
  const stage = await Stage.open(context, 'start');
  const { process: receiving, firstMessage } = launchScript('runs-receiver', {});
  context.defer(() => receiving.stop());
  const { url } = (await firstMessage) as ReceiverReady;
  const target = await stage.createAutomation('nothing', { type: 'http', url });
  const turns = { api: [] as Turn[], worker: [] as Turn[] };
  for (let round = 0; round < context.rounds; round += 1) {
    // The worker has the runs to execute that the API has accepted.
    for (const kind of ['api', 'worker'] as const) {
      const turn = await measure(context, stage, kind, target);
      turns[kind].push(turn);
      context.progress(
        `round ${round + 1}: orc ${kind} ${turn.cpuMs} ms of CPU, ${turn.loadMb.toFixed(0)} MB`,
      );
    }
  }
  return {
    title: 'From exec to the first 200 of /orc/health, or to the first run that can be taken; memory (RSS)',
    rows: [rowOf('orc api', turns.api), rowOf('orc worker', turns.worker)],
    remarks: [
      `Load: ${CONNECTIONS} connections that trigger, then one worker that executes those runs, deliveries to a URL. Its highest memory.`,
      'guard: the process beside each worker that ends its commands when it dies. MB are of 10⁶ bytes.',
    ],
  };
}

interface Turn {
  cpuMs: number;
  wallMs: number;
  startMb: number;
  loadMb: number;
  guardMb?: number;
}

function rowOf(name: string, turns: Turn[]): Row {
  const guards = turns.flatMap(({ guardMb }) => (guardMb === undefined ? [] : [guardMb]));
  return {
    name,
    figures: [
      { unit: 'CPU ms', values: turns.map((turn) => turn.cpuMs) },
      { unit: 'wall ms', values: turns.map((turn) => turn.wallMs) },
      { unit: 'MB started', values: turns.map((turn) => turn.startMb) },
      { unit: 'MB under load', values: turns.map((turn) => turn.loadMb) },
      ...(guards.length > 0 ? [{ unit: 'MB guard', values: guards }] : []),
    ],
  };
}

async function measure(
  context: BenchContext,
  stage: Stage,
  kind: 'api' | 'worker',
  target: Target,
): Promise<Turn> {
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const startedAt = performance.now();
  const { process: started, firstMessage } = launchOrc(kind, stage.environment(port));
  context.defer(() => started.stop());
  await (kind === 'api' ? isHealthy(origin) : firstMessage);
  const wallMs = performance.now() - startedAt;
  const [cpu, startMb] = [cpuMs(started.pid), rssMb(started.pid)];
  const work = kind === 'api' ? press(origin, target, context.seconds) : sleep(context.seconds * 1000);
  const loadMb = await highestMemory(started, work);
  const [guard] = childrenOf(started.pid);
  const guardMb = guard === undefined ? undefined : rssMb(guard);
  await started.stop();
  return { cpuMs: cpu, wallMs, startMb, loadMb, ...(guardMb !== undefined && { guardMb }) };
}

async function isHealthy(origin: string): Promise<void> {
  for (;;) {
    const response = await fetch(`${origin}/orc/health`).catch(() => undefined);
    await response?.arrayBuffer();
    if (response?.ok) return;
    await sleep(START_POLL_MS);
  }
}

/** Triggers as fast as the process answers. */
async function press(origin: string, { slug, apiKey }: Target, seconds: number): Promise<void> {
  await autocannon({
    url: `${origin}/orc/api/automation-triggers/${slug}`,
    method: 'POST',
    headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
    body: PAYLOAD,
    connections: CONNECTIONS,
    duration: seconds,
  });
}

async function highestMemory({ pid }: BenchProcess, work: Promise<unknown>): Promise<number> {
  let highest = rssMb(pid);
  const looking = setInterval(() => {
    highest = Math.max(highest, rssMb(pid));
  }, MEMORY_POLL_MS);
  await work.finally(() => clearInterval(looking));
  return highest;
}

interface Lockfile {
  packages: Record<string, { dev?: boolean }>;
}

/** What `npm ci --omit=dev` would leave, of what is installed here. */
async function sizeOfDependencies(): Promise<Table> {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile;
  const sizes: { path: string; mb: number }[] = [];
  for (const [path, { dev }] of Object.entries(packages)) {
    if (path === '' || dev) continue;
    const bytes = await diskUsage(join(ROOT, path));
    if (bytes > 0) sizes.push({ path: path.replace(/^node_modules\//, ''), mb: bytes / 1e6 });
  }
  sizes.sort((a, b) => b.mb - a.mb);
  const largest = sizes.slice(0, NAMED_PACKAGES).map(({ path, mb }) => `${path} ${mb.toFixed(1)}`);
  const total = sizes.reduce((sum, { mb }) => sum + mb, 0);
  return {
    title: 'Installed production dependencies',
    rows: [
      {
        name: 'node_modules',
        figures: [
          { unit: 'MB', values: [total] },
          { unit: 'packages', values: [sizes.length] },
        ],
      },
    ],
    remarks: [`As du counts, in MB of 10⁶ bytes. The largest: ${largest.join(', ')}.`],
  };
}

/** Bytes on disk of one package, without those that are installed within it; 0 for one that is not installed. */
async function diskUsage(path: string): Promise<number> {
  const status = await lstat(path).catch(() => undefined);
  if (!status) return 0;
  let bytes = status.blocks * BLOCK_BYTES;
  if (!status.isDirectory()) return bytes;
  for (const name of await readdir(path)) {
    if (name !== 'node_modules') bytes += await diskUsage(join(path, name));
  }
  return bytes;
}
