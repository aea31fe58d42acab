import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Action } from '../../../src/core/actions/actions.ts';
import { LoadGenerator } from '../http-load.ts';
import { orcTrigger } from '../http-triggers.ts';
import type { BenchContext, Part, Row, Table } from '../part.ts';
import { copyRun } from '../runs-copy.ts';
import { probe, quantile, Receiver, trigger } from '../runs-probe.ts';
import { type Api, type Console, Stage, type Target, until } from '../runs-stage.ts';

const agent = new Agent({ keepAlive: true });

const AUTOMATIONS = 10_000;

const FAILING: Action = { type: 'command', argv: ['false'], env: {}, passEnv: [] };

/** Automations are created so many at a time. */
const PARALLEL = 100;

const KEPT = 100_000;
const MILLION = 1_000_000;

/** One of so many kept runs failed. */
const FAILED_SHARE = 10;

/** The load under which pages are asked for, which fits on connections that hardly ever wait. */
const TRIGGERS_PER_SECOND = 1000;
const CONNECTIONS = 32;
const PAYLOAD = 100;

/** The load at which starts are measured. */
const STARTS_PER_SECOND = 100;

/** Between two pages, in milliseconds: more than any operator asks for. */
const PAUSE_MS = 20;

/** What an open page asks for by itself comes in steps of this, in milliseconds. */
const REFRESH_MS = 5000;

/** What a process that has just started does before it is at rest, in milliseconds. */
const REST_MS = 2000;

export const consolePart: Part = {
  name: 'console',
  summary: 'times of the console’s pages under load, and what it costs those who trigger',
  async run(context) {
    const receiver = await Receiver.listen((undo) => context.defer(undo));
    const stage = await Stage.open(context, 'console');
    const generator = new LoadGenerator();
    context.defer(() => generator.stop());
    const target = await stage.createAutomation('delivered', { type: 'http', url: receiver.url });
    for (let count = 1; count < AUTOMATIONS; count += PARALLEL) await createAutomations(stage, count);
    const api = await stage.startApi();
    const kept = context.million ? MILLION : KEPT;
    context.progress(`keeps ${kept.toLocaleString('en-US')} runs`);
    const runId = await keepRuns(stage, api, target, kept);
    const bench: Bench = { context, stage, generator, api, target };
    const size = `${AUTOMATIONS.toLocaleString('en-US')} automations and ${kept.toLocaleString('en-US')} kept runs`;
    return [
      {
        ...(await pages(bench, runId)),
        title: `Pages of the console, with ${size}, while ${TRIGGERS_PER_SECOND} triggers a second are accepted`,
      },
      {
        ...(await costs(bench, receiver)),
        title: `Accepting and starting, with ${size}, without a console and with one that is looked at`,
      },
    ];
  },
};

interface Bench {
  context: BenchContext;
  stage: Stage;
  generator: LoadGenerator;
  api: Api;
  target: Target;
}

async function createAutomations(stage: Stage, from: number): Promise<void> {
  const numbers = Array.from({ length: PARALLEL }, (_, index) => from + index);
  await Promise.all(numbers.map((number) => stage.createAutomation(`automation-${number}`, FAILING)));
}

/** @returns the id of one of them */
async function keepRuns(stage: Stage, api: Api, target: Target, count: number): Promise<string> {
  const { redis, keys } = stage.store;
  const worker = await stage.startWorker();
  const failing = await stage.createAutomation('failing', FAILING);
  const [succeeded, failed] = [await trigger(api, target), await trigger(api, failing)];
  await until(async () => (await redis.zcard(keys.endedRuns(target.slug))) === 1);
  await until(async () => (await redis.zcard(keys.failedRuns(failing.slug))) === 1);
  await worker.stop();
  // What is copied need not be on disk before the next copy.
  await redis.call('config', 'set', 'appendfsync', 'no');
  await copyRun(stage.store, succeeded.runId, count - count / FAILED_SHARE - 1);
  await copyRun(stage.store, failed.runId, count / FAILED_SHARE - 1);
  await redis.call('config', 'set', 'appendfsync', 'always');
  return failed.runId;
}

/** Without a worker, which would be on another machine, and here take the time that the pages are to have. */
async function pages(
  { context, stage, generator, api, target }: Bench,
  runId: string,
): Promise<Omit<Table, 'title'>> {
  const operated = await stage.startConsole();
  const automation = `/automations/${target.slug}`;
  const runs = ['/runs', '/runs?status=failed', `/runs?automation=${target.slug}`, `/runs/${runId}`];
  const paths = ['/', '/?period=day', '/automations', automation, ...runs, '/workers', '/audit'];
  const request = orcTrigger(api, target.slug, target.apiKey, PAYLOAD);
  const load = {
    request,
    connections: CONNECTIONS,
    rate: TRIGGERS_PER_SECOND,
    watched: [api.pid, operated.pid],
  };
  // A first time, which counts for nothing: code is compiled, and what is shared by all requests is read.
  for (const path of paths) await ask(operated, path);
  const times = paths.map(() => [] as number[]);
  const accepted: number[] = [];
  const other: number[] = [];
  for (let round = 0; round < context.rounds; round += 1) {
    let isLoaded = true;
    const loading = generator.run({ ...load, seconds: context.seconds }).finally(() => {
      isLoaded = false;
    });
    while (isLoaded) {
      for (const [index, path] of paths.entries()) {
        if (isLoaded) times[index]?.push(await ask(operated, path));
        await sleep(PAUSE_MS);
      }
    }
    const sample = await loading;
    accepted.push(sample.answered / sample.seconds);
    other.push(sample.otherCpuUs / sample.seconds / 1e6);
    context.progress(`round ${round + 1}: ${accepted.at(-1)?.toFixed(0)} accepted/s`);
  }
  await operated.stop();
  return {
    rows: paths.map((path, index) => ({
      name: path.replace(runId, 'ID'),
      figures: [0.5, 0.95].map((share) => ({
        unit: `p${share * 100} ms`,
        values: [quantile(times[index] ?? [], share)],
      })),
    })),
    remarks: [
      `From the request to the last byte, asked for one after the other, ${Math.min(...times.map(({ length }) => length))} times each; accepted/s: ${Math.round(Math.min(...accepted))} or more.`,
      `Other processes than API and console, which are Redis, the clients and what else there was, used up to ${Math.max(...other).toFixed(2)} cores.`,
    ],
  };
}

/** Takes turns: no console; one whose overview and runs are open in a browser. */
async function costs(
  { context, stage, generator, api, target }: Bench,
  receiver: Receiver,
): Promise<Omit<Table, 'title'>> {
  const request = orcTrigger(api, target.slug, target.apiKey, PAYLOAD);
  const starts = async () => {
    const { start } = await probe({ api, targets: [target] }, receiver, STARTS_PER_SECOND, context.seconds);
    return quantile(start, 0.5);
  };
  const load = { request, connections: CONNECTIONS, seconds: context.seconds, watched: [api.pid] };
  const accepts = async () => {
    const { latency } = await generator.run({ ...load, rate: TRIGGERS_PER_SECOND });
    return latency.p50;
  };
  const acceptsAtMost = async () => {
    const { answered, seconds } = await generator.run(load);
    return answered / seconds;
  };
  const worker = await stage.startWorker();
  const [startWithout, startWith] = await inTurns(context, stage, starts);
  await worker.stop();
  const [acceptWithout, acceptWith] = await inTurns(context, stage, accepts);
  const [mostWithout, mostWith] = await inTurns(context, stage, acceptsAtMost);
  const row = (name: string, accept: number[], start: number[], most: number[]): Row => ({
    name,
    figures: [
      { unit: 'accept p50 ms', values: accept },
      { unit: 'start p50 ms', values: start },
      { unit: 'accepted/s at most', values: most },
    ],
  });
  return {
    reference: 'without',
    rows: [
      row('without', acceptWithout, startWithout, mostWithout),
      row('with', acceptWith, startWith, mostWith),
    ],
    remarks: [
      `accept: at ${TRIGGERS_PER_SECOND} triggers a second, without a worker; start: from the 202 to the first byte at the automation's URL, at ${STARTS_PER_SECOND}.`,
      `at most: ${CONNECTIONS} connections, without a worker. The console has to share the cores then: an overview examines all automations every 20 s while it is looked at.`,
    ],
  };
}

/** @returns what was measured without a console, and with one */
async function inTurns(
  { rounds, progress }: BenchContext,
  stage: Stage,
  measure: () => Promise<number>,
): Promise<[without: number[], withConsole: number[]]> {
  const without: number[] = [];
  const withConsole: number[] = [];
  await measure();
  for (let round = 1; round <= rounds; round += 1) {
    without.push(await measure());
    const operated = await stage.startConsole();
    const timer = setInterval(() => void refresh(operated), REFRESH_MS);
    await refresh(operated);
    await sleep(REST_MS);
    withConsole.push(await measure());
    clearInterval(timer);
    await operated.stop();
    progress(`round ${round}: ${without.at(-1)?.toFixed(2)} and ${withConsole.at(-1)?.toFixed(2)}`);
  }
  return [without, withConsole];
}

/** What the open pages of one operator ask for. */
async function refresh(operated: Console): Promise<void> {
  await Promise.all(['/', '/runs', '/workers'].map((path) => ask(operated, path)));
}

/** @returns milliseconds until the page has come */
async function ask({ url, headers }: Console, path: string): Promise<number> {
  const askedAt = performance.now();
  const sent = get(`${url}${path}`, { headers, agent });
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const body = (await response.toArray()).join('');
  if (response.statusCode !== 200) throw new Error(`${path} was answered ${response.statusCode}: ${body}`);
  return performance.now() - askedAt;
}
