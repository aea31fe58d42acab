import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { RunFilter } from '../../../src/store/runs.ts';
import { type BenchContext, type Figure, median, type Part, type Row, type Table } from '../part.ts';
import { copyRun } from '../runs-copy.ts';
import { type Latencies, probe, quantile, Receiver, trigger } from '../runs-probe.ts';
import { ORC } from '../runs-process.ts';
import { type Api, Stage, type Target, until } from '../runs-stage.ts';

/** Waiting runs, and as many ended ones. With less than a hundred, a list of twenty would be less work. */
const RUNS = [100, 10_000, 100_000];
const MILLION = 1_000_000;

/** One of so many ended runs failed. */
const FAILED_SHARE = 10;

const AUTOMATIONS = [1, 100, 10_000];

/** Automations are created so many at a time. */
const PARALLEL = 100;

/** The modest load at which latencies are measured. */
const TRIGGERS_PER_SECOND = 100;

/** Lists are asked for so often in a turn. */
const LISTS = 10;
const LIST_LIMIT = 20;

/** The run that blocks its automation's lane goes on for longer than any benchmark, in seconds. */
const BLOCKING_S = 86_400;

export const grow: Part = {
  name: 'grow',
  summary: 'accept, start, memory and listing with many waiting runs, kept runs and automations',
  run: async (context) => [...(await manyRuns(context)), await manyAutomations(context)],
};

/** One size of an installation. All sizes are there at once, each with its own Redis, and take turns. */
interface Size {
  name: string;
  api: Api;
  stage: Stage;
  /** What is triggered, one after the other. */
  targets: Target[];
}

async function manyRuns(context: BenchContext): Promise<Table[]> {
  const receiver = await Receiver.listen((undo) => context.defer(undo));
  const sizes: Size[] = [];
  const fills: Fill[] = [];
  for (const count of context.million ? [...RUNS, MILLION] : RUNS) {
    const name = count.toLocaleString('en-US');
    const stage = await openQuietStage(context, `runs-${count}`);
    const target = await stage.createAutomation('idle', { type: 'http', url: receiver.url });
    const api = await stage.startApi();
    await stage.startWorker();
    sizes.push({ name, api, stage, targets: [target] });
    context.progress(`makes ${name} waiting runs and ${name} ended ones`);
    fills.push(await fill(stage, api, receiver.url, count));
  }
  const tables: Table[] = [
    {
      title: 'Runs that wait in the lane of one automation, while another automation is triggered',
      reference: firstOf(sizes),
      rows: await latencies(context, sizes, receiver),
      remarks: [
        `${TRIGGERS_PER_SECOND} triggers a second. start: from the 202 to the first byte at the automation's URL.`,
      ],
    },
  ];
  for (const kind of ['waiting', 'ended'] as const) {
    tables.push({
      title: `The ${LIST_LIMIT} newest of one automation's ${kind} runs, and the memory of Redis for each`,
      reference: firstOf(sizes),
      rows: (await lists(context, sizes, { automation: kind })).map(({ name, figures }, index) => ({
        name,
        figures: [...figures, { unit: 'B per run', values: memoryOf(fills[index], kind) }],
      })),
      remarks: [
        'command: `orc runs list` from its start to its end, most of which is loading Node and itself.',
      ],
    });
  }
  tables.push({
    title: `The ${LIST_LIMIT} runs that failed last, of as many kept ones: every ${FAILED_SHARE}th of the ended runs failed`,
    reference: firstOf(sizes),
    rows: await lists(context, sizes, { failed: true, since: new Date(Date.now() - 3_600_000) }),
    remarks: ['command: `orc runs list --failed --since 1h`.'],
  });
  return tables;
}

function firstOf([first]: Size[]): string {
  return first?.name ?? '';
}

/** Redis rewrites its file now and then, as a second process; here it does not, so that nothing but size differs. */
async function openQuietStage(context: BenchContext, name: string): Promise<Stage> {
  const stage = await Stage.open(context, name);
  await stage.store.redis.call('config', 'set', 'auto-aof-rewrite-percentage', '0');
  return stage;
}

/** Bytes of Redis' memory for each run. */
interface Fill {
  waiting?: number;
  ended?: number;
}

/** Lets runs wait behind one that does not end, and keeps as many that have ended. */
async function fill(stage: Stage, api: Api, url: string, count: number): Promise<Fill> {
  const { runs, redis } = stage.store;
  const waiting = await stage.createAutomation(
    'waiting',
    { type: 'command', argv: ['sleep', `${BLOCKING_S}`], env: {}, passEnv: [] },
    { concurrency: 1, timeoutMs: BLOCKING_S * 1000 },
  );
  const ended = await stage.createAutomation('ended', { type: 'http', url });
  const blocking = await trigger(api, waiting);
  await until(async () => (await runs.get(blocking.runId))?.status === 'running');
  const first = await trigger(api, waiting);
  const executed = await trigger(api, ended);
  const failing = await stage.createAutomation('failing', {
    type: 'command',
    argv: ['false'],
    env: {},
    passEnv: [],
  });
  const failed = await trigger(api, failing);
  await until(async () => (await runs.get(executed.runId))?.endedAt !== undefined);
  // What is noted about a run after its end is there when the index has moved it.
  await until(async () => (await redis.zcard(stage.store.keys.endedRuns('ended'))) === 1);
  await until(async () => (await redis.zcard(stage.store.keys.failedRuns('failing'))) === 1);

  // What is copied need not be on disk before the next copy; what is measured later has to be.
  await redis.call('config', 'set', 'appendfsync', 'no');
  const before = await memoryBytes(stage);
  await copyRun(stage.store, first.runId, count - 1);
  const between = await memoryBytes(stage);
  await copyRun(stage.store, executed.runId, count - 1);
  const after = await memoryBytes(stage);
  await copyRun(stage.store, failed.runId, Math.ceil(count / FAILED_SHARE) - 1);
  await redis.call('config', 'set', 'appendfsync', 'always');
  // A few runs are less than what else changes in the memory.
  if (count === RUNS[0]) return {};
  return { waiting: (between - before) / (count - 1), ended: (after - between) / (count - 1) };
}

function memoryOf(memory: Fill | undefined, kind: keyof Fill): number[] {
  const bytes = memory?.[kind];
  return bytes === undefined ? [] : [bytes];
}

/** What Redis has allocated for data, in bytes. */
async function memoryBytes({ store: { redis } }: Stage): Promise<number> {
  const info = String(await redis.call('info', 'memory'));
  const [used = 0, clients = 0, file = 0] = ['used_memory', 'mem_clients_normal', 'mem_aof_buffer'].map(
    (name) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1]),
  );
  return used - clients - file;
}

async function latencies(context: BenchContext, sizes: Size[], receiver: Receiver): Promise<Row[]> {
  const { rounds, seconds, progress } = context;
  // A first time for everybody, which counts for nothing.
  for (const size of sizes) await probe(size, receiver, TRIGGERS_PER_SECOND, 1);
  const turns = sizes.map(() => [] as Latencies[]);
  for (let round = 0; round < rounds; round += 1) {
    for (const [index, size] of sizes.entries()) {
      const turn = await probe(size, receiver, TRIGGERS_PER_SECOND, seconds);
      turns[index]?.push(turn);
      progress(`round ${round + 1}: ${size.name}: p50 ${quantile(turn.accept, 0.5).toFixed(2)} ms to accept`);
    }
  }
  return sizes.map(({ name }, index) => ({
    name,
    figures: [
      figure('accept p50 ms', turns[index], ({ accept }) => quantile(accept, 0.5)),
      figure('accept p99 ms', turns[index], ({ accept }) => quantile(accept, 0.99)),
      figure('start p50 ms', turns[index], ({ start }) => quantile(start, 0.5)),
      figure('start p99 ms', turns[index], ({ start }) => quantile(start, 0.99)),
    ],
  }));
}

function figure(unit: string, turns: Latencies[] | undefined, value: (turn: Latencies) => number): Figure {
  return { unit, values: (turns ?? []).map(value) };
}

/** How long it takes to list the runs that match. */
async function lists(
  { rounds }: BenchContext,
  sizes: Size[],
  { automation, failed = false, since }: Omit<RunFilter, 'limit'> = {},
): Promise<Row[]> {
  const filter = { limit: LIST_LIMIT, automation, failed, since };
  const args = ['runs', 'list', '--json', '--limit', `${LIST_LIMIT}`];
  if (automation !== undefined) args.push('--automation', automation);
  if (failed) args.push('--failed');
  if (since) args.push('--since', since.toISOString());
  const figures = sizes.map(() => ({ list: [] as number[], command: [] as number[] }));
  for (let round = 0; round < rounds; round += 1) {
    for (const [index, { stage }] of sizes.entries()) {
      const times: number[] = [];
      for (let count = 0; count < LISTS; count += 1) times.push(await timed(stage.store.runs.list(filter)));
      figures[index]?.list.push(median(times));
      const command = promisify(execFile)(process.execPath, [ORC, ...args], { env: stage.environment(0) });
      figures[index]?.command.push(await timed(command));
    }
  }
  return sizes.map(({ name }, index) => ({
    name,
    figures: [
      { unit: 'list ms', values: figures[index]?.list ?? [] },
      { unit: 'command ms', values: figures[index]?.command ?? [] },
    ],
  }));
}

/** @returns milliseconds from the call to the end */
async function timed(work: Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work;
  return performance.now() - startedAt;
}

async function manyAutomations(context: BenchContext): Promise<Table> {
  const receiver = await Receiver.listen((undo) => context.defer(undo));
  const sizes: Size[] = [];
  for (const count of AUTOMATIONS) {
    const name = count.toLocaleString('en-US');
    const stage = await openQuietStage(context, `automations-${count}`);
    const targets: Target[] = [];
    while (targets.length < count) {
      const batch = Array.from({ length: Math.min(PARALLEL, count - targets.length) }, (_, index) =>
        stage.createAutomation(`automation-${targets.length + index}`, { type: 'http', url: receiver.url }),
      );
      targets.push(...(await Promise.all(batch)));
    }
    const api = await stage.startApi();
    await stage.startWorker();
    sizes.push({ name, api, stage, targets });
  }
  const rows = await latencies(context, sizes, receiver);
  const listed = await lists(context, sizes);
  return {
    title: `Automations, which are triggered in turn, and the list of the ${LIST_LIMIT} newest runs of all`,
    reference: firstOf(sizes),
    rows: rows.map(({ name, figures }, index) => ({
      name,
      figures: [...figures, ...(listed[index]?.figures ?? [])],
    })),
  };
}
