import { setTimeout as sleep } from 'node:timers/promises';
import autocannon from 'autocannon';
import { type BenchContext, type Figure, median, type Part, type Row, type Table } from '../part.ts';
import { type BenchProcess, cpuMs, launchScript } from '../runs-process.ts';
import type { ReceiverReady } from '../runs-receiver.ts';
import { type Api, PAYLOAD, Stage, type Target, until } from '../runs-stage.ts';

const COUNTS = [1, 2, 4];

/** All API processes together are given so many connections. */
const CONNECTIONS = 32;

/** So many runs has each process accepted or executed before it is measured: by then its code is compiled. */
const WARM_UP_ACCEPTED = 3000;
const WARM_UP_EXECUTED = 1000;

/** How much of its one core Redis may use before latencies grow, as a rule of thumb. */
const REDIS_SHARE = 0.7;

export const scale: Part = {
  name: 'scale',
  summary: 'CPU time of each kind of process for each run, with 1, 2 and 4 API processes and workers',
  run: async (context) => {
    if (process.platform !== 'linux') {
      return [{ title: 'Scale', rows: [], remarks: ['Skipped: CPU times are read from /proc.'] }];
    }
    const stage = await Stage.open(context, 'scale');
    const { process: receiving, firstMessage } = launchScript('runs-receiver', {});
    context.defer(() => receiving.stop());
    const { url } = (await firstMessage) as ReceiverReady;
    const accepting = COUNTS.map((count) => emptyRow(`${count} × orc api`));
    const executing = COUNTS.map((count) => emptyRow(`${count} × orc worker`));
    for (let round = 0; round < context.rounds; round += 1) {
      for (const [index, count] of COUNTS.entries()) {
        await stage.clear();
        const target = await stage.createAutomation('nothing', { type: 'http', url });
        const accepted = await measureApis(context, stage, target, count);
        add(accepting[index], 'API', accepted);
        const executed = await measureWorkers(context, stage, count);
        add(executing[index], 'worker', executed);
        context.progress(
          `round ${round + 1}: ${count} of each: ${accepted.perSecond.toFixed(0)} accepted, ${executed.perSecond.toFixed(0)} executed a second`,
        );
      }
    }
    return tablesOf(accepting, executing);
  },
};

function emptyRow(name: string): Row {
  return { name, figures: [] };
}

/** What was done in a turn, and the CPU time that one run took, in microseconds. */
interface Turn {
  perSecond: number;
  processUs: number;
  redisUs: number;
}

function add(row: Row | undefined, kind: string, { perSecond, processUs, redisUs }: Turn): void {
  const values = { 'runs/s': perSecond, [`${kind} CPU µs/run`]: processUs, 'Redis CPU µs/run': redisUs };
  for (const [unit, value] of Object.entries(values)) {
    const figure: Figure = row?.figures.find((each) => each.unit === unit) ?? { unit, values: [] };
    if (figure.values.push(value) === 1) row?.figures.push(figure);
  }
}

async function measureApis(
  context: BenchContext,
  stage: Stage,
  target: Target,
  count: number,
): Promise<Turn> {
  const apis = await Promise.all(Array.from({ length: count }, () => stage.startApi()));
  await press(apis, target, { amount: WARM_UP_ACCEPTED });
  const turn = await measure(stage, apis, () => press(apis, target, { duration: context.seconds }));
  await Promise.all(apis.map((api) => api.stop()));
  return turn;
}

/** Lets workers execute what waits, of which there is more than they manage. */
async function measureWorkers(context: BenchContext, stage: Stage, count: number): Promise<Turn> {
  const workers = await Promise.all(Array.from({ length: count }, () => stage.startWorker()));
  await until(async () => (await stage.countSucceeded()) >= WARM_UP_EXECUTED * count);
  const turn = await measure(stage, workers, async () => {
    const before = await stage.countSucceeded();
    await sleep(context.seconds * 1000);
    return (await stage.countSucceeded()) - before;
  });
  const waiting = await stage.store.runs.countQueued();
  if (waiting === 0)
    context.progress('nothing was left to be executed: the figures of this turn are too low');
  await Promise.all(workers.map((worker) => worker.stop()));
  return turn;
}

/** @param work what is done; it returns the number of runs */
async function measure(stage: Stage, parts: BenchProcess[], work: () => Promise<number>): Promise<Turn> {
  const processesMs = () => parts.reduce((sum, { pid }) => sum + cpuMs(pid), 0);
  const before = { processes: processesMs(), redis: cpuMs(stage.redisPid), at: performance.now() };
  const runs = await work();
  const [processes, redis, at] = [processesMs(), cpuMs(stage.redisPid), performance.now()];
  return {
    perSecond: (runs / (at - before.at)) * 1000,
    processUs: ((processes - before.processes) * 1000) / runs,
    redisUs: ((redis - before.redis) * 1000) / runs,
  };
}

/** Triggers each process as fast as it answers, so often or for so long. @returns how many were accepted */
async function press(
  apis: Api[],
  { slug, apiKey }: Target,
  extent: { amount: number } | { duration: number },
): Promise<number> {
  const results = await Promise.all(
    apis.map(({ url }) =>
      autocannon({
        url: `${url}/orc/api/automation-triggers/${slug}`,
        method: 'POST',
        headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
        body: PAYLOAD,
        connections: CONNECTIONS / apis.length,
        ...extent,
      }),
    ),
  );
  return results.reduce((sum, result) => sum + result['2xx'], 0);
}

function tablesOf(accepting: Row[], executing: Row[]): Table[] {
  const ofOne = (rows: Row[], unit: string) =>
    median(rows[0]?.figures.find((figure) => figure.unit === unit)?.values ?? []);
  const redisUs = ofOne(accepting, 'Redis CPU µs/run') + ofOne(executing, 'Redis CPU µs/run');
  const apiUs = ofOne(accepting, 'API CPU µs/run');
  const workerUs = ofOne(executing, 'worker CPU µs/run');
  const carried = (REDIS_SHARE * 1e6) / redisUs;
  return [
    {
      title: `Accepting, ${CONNECTIONS} connections, no worker`,
      rows: accepting,
      remarks: [
        'The processes, Redis and the client share the cores: what carries over is CPU time, not runs/s.',
      ],
    },
    {
      title: 'Executing runs that wait and deliver to a no-op URL, no API',
      rows: executing,
      remarks: [
        `A run costs Redis ${redisUs.toFixed(0)} µs from its 202 to its end. One Redis, which executes commands on one core, carries ${carried.toFixed(0)} runs a second at ${REDIS_SHARE * 100} % of it,`,
        `which keep ${((carried * apiUs) / 1e6).toFixed(1)} cores of API processes and ${((carried * workerUs) / 1e6).toFixed(1)} of workers busy. Batches grow with the load, so that a busy Redis needs less for each run.`,
        'Beyond that: several installations, each with its own Redis, automations divided among them by a load balancer by their slugs.',
      ],
    },
  ];
}
