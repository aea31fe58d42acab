import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Action } from '../../../src/core/actions/actions.ts';
import { type BenchContext, median, type Part, type Row, type Table } from '../part.ts';
import type { BareSettings, SpawnEnds } from '../runs-bare.ts';
import type { LoadResult, LoadSettings } from '../runs-load.ts';
import { FirstByte, post, quantile, Receiver, trigger } from '../runs-probe.ts';
import { type Launched, launchScript } from '../runs-process.ts';
import type { ReceiverReady } from '../runs-receiver.ts';
import { type Api, PAYLOAD, Stage, type Target, until } from '../runs-stage.ts';

/** That of a worker without WORKER_CONCURRENCY. */
const CONCURRENCY = 10;

/** A command that does nothing. */
const NOTHING = ['/bin/true'];

/** So many runs are executed in a turn for each second that a turn is to take: about what a core manages. */
const DELIVERIES_PER_SECOND = 1000;
const COMMANDS_PER_SECOND = 200;

/** The first runs of a turn, which warm the processes up, are left out of its rate. */
const WARM_UP_SHARE = 0.2;

/** Between two probes of what takes a few milliseconds, in milliseconds: long enough for everything to be idle again. */
const PAUSE_MS = 25;

/** How long load goes on before it is measured beside it, in seconds. */
const WARM_UP_SECONDS = 1;

const BARE_QUEUE = 'bare';

export const deliver: Part = {
  name: 'deliver',
  summary:
    '202 to first byte of a command and a URL, and runs per second, against bare spawn and bare BullMQ',
  run: async (context) => {
    const stage = await Stage.open(context, 'deliver');
    const { process: receiving, firstMessage } = launchScript('runs-receiver', {});
    context.defer(() => receiving.stop());
    const { url } = (await firstMessage) as ReceiverReady;
    const { redisUrl } = stage;

    const deliveries = DELIVERIES_PER_SECOND * context.seconds;
    const bare = { kind: 'bullmq', count: deliveries, concurrency: CONCURRENCY, payload: PAYLOAD } as const;
    const redis = { host: new URL(redisUrl).hostname, port: Number(new URL(redisUrl).port) };
    const toUrl = await takeTurns(context, 'runs/s', {
      'bare BullMQ, same request': () => bareRate(stage, { ...bare, redis, queue: BARE_QUEUE, url }),
      'bare BullMQ, empty': () => bareRate(stage, { ...bare, redis, queue: BARE_QUEUE }),
      orc: () => orcRate(stage, { type: 'http', url }, deliveries),
    });
    const commands = COMMANDS_PER_SECOND * context.seconds;
    const toCommand = await takeTurns(context, 'runs/s', {
      'bare spawn': () => spawnRate(commands),
      orc: () => orcRate(stage, commandOf(NOTHING), commands),
    });
    await stage.clear();
    const points = await preparePoints(context, stage, url);
    return [
      {
        title: `Runs per second to a no-op URL, one worker of ${CONCURRENCY}, ${deliveries} waiting`,
        rows: toUrl,
        reference: 'bare BullMQ, same request',
      },
      {
        title: `Runs per second of ${NOTHING.join(' ')}, one worker of ${CONCURRENCY}, ${commands} waiting`,
        rows: toCommand,
        reference: 'bare spawn',
      },
      ...(await idle(context, points)),
      ...(await halfLoad(context, stage, points, { command: rateOf(toCommand), url: rateOf(toUrl) })),
    ];
  },
};

function commandOf(argv: string[]): Action {
  return { type: 'command', argv, env: {}, passEnv: [] };
}

/** Measures the contestants one after the other, as many times as there are rounds. */
async function takeTurns(
  { rounds, progress }: BenchContext,
  unit: string,
  contestants: Record<string, () => Promise<number>>,
): Promise<Row[]> {
  const rows = Object.keys(contestants).map((name) => ({
    name,
    figures: [{ unit, values: [] as number[] }],
  }));
  for (let round = 0; round < rounds; round += 1) {
    for (const { name, figures } of rows) {
      const value = (await contestants[name]?.()) ?? Number.NaN;
      figures[0]?.values.push(value);
      progress(`round ${round + 1}: ${name} ${value.toFixed(0)} ${unit}`);
    }
  }
  return rows;
}

function rateOf(rows: Row[]): number {
  return median(rows.find(({ name }) => name === 'orc')?.figures[0]?.values ?? []);
}

async function orcRate(stage: Stage, action: Action, count: number): Promise<number> {
  await stage.clear();
  await stage.accept(await stage.createAutomation('nothing', action), count);
  const worker = await stage.startWorker();
  const rate = await completionRate(stage, `${stage.store.keys.queuePrefix}:runs:completed`, count);
  await worker.stop();
  return rate;
}

async function bareRate(stage: Stage, settings: Extract<BareSettings, { kind: 'bullmq' }>): Promise<number> {
  await stage.clear();
  const { process: worker } = launchScript('runs-bare', settings);
  const rate = await completionRate(stage, `bull:${settings.queue}:completed`, settings.count);
  await worker.stop();
  return rate;
}

async function spawnRate(count: number): Promise<number> {
  const settings = {
    kind: 'spawn',
    argv: NOTHING,
    count,
    concurrency: CONCURRENCY,
    payload: PAYLOAD,
  } as const;
  const { process: spawning, firstMessage } = launchScript('runs-bare', settings satisfies BareSettings);
  const ends = (await firstMessage) as SpawnEnds;
  await spawning.stop();
  return perSecond(ends[Math.floor(count * WARM_UP_SHARE)], ends.at(-1), count);
}

/** Waits until all jobs are in BullMQ's set of completed ones, whose scores are when each one ended. */
async function completionRate({ store }: Stage, completed: string, count: number): Promise<number> {
  await until(async () => (await store.redis.zcard(completed)) >= count);
  const first = Math.floor(count * WARM_UP_SHARE);
  const [, from] = await store.redis.zrange(completed, first, `${first}`, 'WITHSCORES');
  const [, to] = await store.redis.zrange(completed, -1, '-1', 'WITHSCORES');
  return perSecond(Number(from), Number(to), count);
}

function perSecond(fromMs = Number.NaN, toMs = Number.NaN, count: number): number {
  return ((count - 1 - Math.floor(count * WARM_UP_SHARE)) / (toMs - fromMs)) * 1000;
}

/** What latencies are measured of, and with. */
interface Points {
  api: Api;
  /** Milliseconds to the first byte, by the name of the row. */
  measures: Record<string, () => Promise<number>>;
  /** What the load at half of the throughput triggers. */
  load: { command: Target; url: Target };
}

async function preparePoints(context: BenchContext, stage: Stage, url: string): Promise<Points> {
  const defer = context.defer.bind(context);
  const receiver = await Receiver.listen(defer);
  const firstByte = await FirstByte.open(join(context.directory, 'first-byte'), defer);
  const [program = '', ...args] = firstByte.argv;
  const command = await stage.createAutomation('first-byte', commandOf(firstByte.argv));
  const delivery = await stage.createAutomation('arrival', { type: 'http', url: receiver.url });
  const load = {
    command: await stage.createAutomation('load-command', commandOf(NOTHING)),
    url: await stage.createAutomation('load-url', { type: 'http', url }),
  };
  const api = await stage.startApi();
  await stage.startWorker();
  let requests = 0;
  const measures: Points['measures'] = {
    'bare spawn': async () => {
      const byte = firstByte.next();
      const startedAt = performance.now();
      const child = spawn(program, args, { stdio: 'pipe' });
      child.stdin.end(PAYLOAD);
      return (await byte) - startedAt;
    },
    'orc, command': async () => {
      const byte = firstByte.next();
      const { acceptedAt } = await trigger(api, command);
      return (await byte) - acceptedAt;
    },
    'bare request': async () => {
      requests += 1;
      const id = `bare ${requests}`;
      const startedAt = performance.now();
      const response = await post(receiver.url, { 'webhook-id': id });
      response.resume();
      return (await receiver.arrival(id)) - startedAt;
    },
    'orc, URL': async () => {
      const { runId, acceptedAt } = await trigger(api, delivery);
      return (await receiver.arrival(runId)) - acceptedAt;
    },
  };
  return { api, measures, load };
}

async function idle(context: BenchContext, { measures }: Points): Promise<Table[]> {
  // Everybody's first times, which load code and open connections.
  for (const name of Object.keys(measures)) await probe(measures, name, WARM_UP_SECONDS);
  const rows = await latencies(context, measures, Object.keys(measures));
  return [
    {
      title: 'From the 202 to the first byte, idle',
      rows,
      remarks: [
        'bare spawn and bare request: from the call instead of the 202. The same process takes all times.',
        `The command is dd, which reads one of the payload's ${PAYLOAD.length} bytes and writes it into a named pipe.`,
      ],
    },
  ];
}

async function halfLoad(
  context: BenchContext,
  stage: Stage,
  { api, measures, load }: Points,
  rates: { command: number; url: number },
): Promise<Table[]> {
  const tables: Table[] = [];
  for (const kind of ['command', 'url'] as const) {
    const rate = Math.max(Math.round(rates[kind] / 2), 1);
    const names = kind === 'command' ? ['bare spawn', 'orc, command'] : ['bare request', 'orc, URL'];
    // A little longer than what is measured beside it.
    const seconds = Math.ceil(context.rounds * names.length * context.seconds) + 2 * WARM_UP_SECONDS;
    const { process: pressing, firstMessage: pressed } = press(api, load[kind], rate, seconds);
    context.defer(() => pressing.stop());
    await sleep(WARM_UP_SECONDS * 1000);
    const rows = await latencies(context, measures, names);
    const waiting = await stage.store.runs.countQueued();
    const { accepted, failed } = (await pressed) as LoadResult;
    await pressing.stop();
    await until(async () => (await stage.store.runs.countQueued()) === 0);
    tables.push({
      title: `From the 202 to the first byte, while ${rate} runs per second of the same kind are triggered and executed`,
      rows,
      remarks: [
        `${accepted} accepted meanwhile, ${failed} not; ${waiting} waited at the end.`,
        'The load takes part in everything: the client that makes it, the API, the worker and Redis share the cores.',
      ],
    });
  }
  return tables;
}

/** Triggers an automation at a fixed rate, from a process of its own. */
function press({ url }: Api, { slug, apiKey }: Target, perSecond: number, seconds: number): Launched {
  return launchScript('runs-load', {
    url: `${url}/orc/api/automation-triggers/${slug}`,
    headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
    payload: PAYLOAD,
    perSecond,
    seconds,
  } satisfies LoadSettings);
}

async function latencies(
  { rounds, seconds, progress }: BenchContext,
  measures: Points['measures'],
  names: string[],
): Promise<Row[]> {
  const rows = names.map((name) => ({
    name,
    figures: [0.5, 0.95].map((share) => ({
      unit: `p${share * 100} ms`,
      share,
      values: [] as number[],
    })),
  }));
  for (let round = 0; round < rounds; round += 1) {
    for (const { name, figures } of rows) {
      const values = await probe(measures, name, seconds);
      for (const figure of figures) figure.values.push(quantile(values, figure.share));
      progress(`round ${round + 1}: ${name} ${quantile(values, 0.5).toFixed(2)} ms, ${values.length} times`);
    }
  }
  return rows.map(({ name, figures }) => ({
    name,
    figures: figures.map(({ unit, values }) => ({ unit, values })),
  }));
}

async function probe(measures: Points['measures'], name: string, seconds: number): Promise<number[]> {
  const values: number[] = [];
  for (const end = performance.now() + seconds * 1000; performance.now() < end; ) {
    values.push((await measures[name]?.()) ?? Number.NaN);
    // Not in step with any interval of the processes.
    await sleep(PAUSE_MS * (0.5 + Math.random()));
  }
  return values;
}
