import { setTimeout as sleep } from 'node:timers/promises';
import { cpuUsOf } from './http-figures.ts';
import type { HttpRequest, Load, LoadGenerator, Sample } from './http-load.ts';
import type { BenchRedis } from './http-redis.ts';
import type { Server } from './http-servers.ts';
import { type BenchContext, type Figure, median, OTHER_CORES, type Row } from './part.ts';

/**
 * Before its first round a contestant works, as a closed loop, without being measured: until it has answered this often,
 * but no longer than so many seconds. Until then Node compiles its code, and requests are several times as expensive.
 */
const WARM_UP_ANSWERS = 30_000;
const WARM_UP_MAX_SECONDS = 15;

/** In seconds: the same before a later comparison, and in steps of this before the first. */
const WARM_UP_SECONDS = 1;

/** A server is at rest when it used no more than this share of a core for as many milliseconds. */
const REST_SHARE = 0.1;
const REST_MS = 200;
const REST_DEADLINE_MS = 20_000;

/** Who takes part in a comparison, and what it is asked. */
export interface Contestant {
  name: string;
  server: Server;
  request: HttpRequest;
  /** Anything else that it answers ends the measurement, for a figure of errors says nothing. */
  status: number;
  /** The Redis that it fills. */
  redis?: BenchRedis;
}

export interface Turns {
  generator: LoadGenerator;
  connections: number;
  rounds: number;
  seconds: number;
  /** Of an open model. */
  rate?: number;
}

/** Lets the contestants take turns, A B A B, each from the same state. @returns their samples, in the order of the rounds */
export async function takeTurns(
  context: BenchContext,
  contestants: readonly Contestant[],
  turns: Turns,
): Promise<Map<string, Sample[]>> {
  const { rounds } = turns;
  const samples = new Map(contestants.map(({ name }) => [name, [] as Sample[]]));
  for (const contestant of contestants) await warmUp(contestant, turns);
  for (let round = 1; round <= rounds; round += 1) {
    for (const contestant of contestants) {
      const sample = await takeTurn(contestant, turns);
      if (sample.answered === 0) {
        throw new Error(
          `${contestant.name} answered nothing in a turn of ${turns.seconds} s. Give more --seconds.`,
        );
      }
      samples.get(contestant.name)?.push(sample);
      const { answered, seconds, latency } = sample;
      context.progress(
        `${round}/${rounds} ${contestant.name.padEnd(24)} ${Math.round(answered / seconds)}/s, p99 ${latency.p99.toFixed(2)} ms`,
      );
    }
  }
  return samples;
}

/** Which contestants of a server have been warmed up, by their names. */
const warm = new WeakMap<Server, Set<string>>();

async function warmUp(contestant: Contestant, { rate: _, ...turns }: Turns): Promise<void> {
  const { name, server } = contestant;
  const known = warm.get(server) ?? new Set();
  let answered = 0;
  let seconds = 0;
  do {
    const sample = await takeTurn(contestant, { ...turns, seconds: WARM_UP_SECONDS });
    answered += sample.answered;
    seconds += sample.seconds;
  } while (!known.has(name) && answered < WARM_UP_ANSWERS && seconds < WARM_UP_MAX_SECONDS);
  warm.set(server, known.add(name));
}

async function takeTurn(contestant: Contestant, turns: Turns): Promise<Sample> {
  const { server, request, redis } = contestant;
  const { generator, connections, seconds, rate } = turns;
  await redis?.reset();
  const load: Load = {
    ...{ request, connections, seconds },
    watched: [server.pid, ...(redis ? [redis.pid] : [])],
    ...(rate !== undefined && { rate }),
  };
  const sample = await generator.run(load);
  checkAnswers(contestant, sample);
  await untilAtRest(server);
  return sample;
}

/** @throws when something else than what is measured was answered */
function checkAnswers({ name, status }: Contestant, { statuses, failures }: Sample): void {
  if (failures === 0 && Object.keys(statuses).every((each) => Number(each) === status)) return;
  const counts = Object.entries(statuses).map(([each, count]) => `${count} × ${each}`);
  throw new Error(
    `${name} answered ${counts.join(', ')}, with ${failures} failures, where ${status} was expected`,
  );
}

/** What is still being worked on, and the processes that were started, would otherwise slow down the next one's turn. */
async function untilAtRest({ pid }: Server): Promise<void> {
  for (const until = Date.now() + REST_DEADLINE_MS; Date.now() < until; ) {
    const before = cpuUsOf(pid);
    await sleep(REST_MS);
    if (!(cpuUsOf(pid) - before > REST_SHARE * REST_MS * 1000)) return;
  }
}

/** The figures of a closed loop. */
export function toRow({ name }: Contestant, samples: readonly Sample[] = []): Row {
  const each = (unit: string, value: (sample: Sample) => number): Figure => ({
    unit,
    values: samples.map(value),
  });
  const hasRedis = samples.some(({ cpuUs }) => cpuUs.length > 1);
  return {
    name,
    figures: [
      each('requests/s', ({ answered, seconds }) => answered / seconds),
      each('p50 ms', ({ latency }) => latency.p50),
      each('p99 ms', ({ latency }) => latency.p99),
      each('p99.9 ms', ({ latency }) => latency.p999),
      each('CPU µs', ({ cpuUs: [us = Number.NaN], answered }) => us / answered),
      ...(hasRedis
        ? [context('Redis CPU µs', ({ cpuUs: [, us = Number.NaN], answered }) => us / answered)]
        : []),
      context('server cores', ({ cpuUs: [us = Number.NaN], seconds }) => us / seconds / 1e6),
      context('client cores', ({ clientCpuUs, seconds }) => clientCpuUs / seconds / 1e6),
      context(OTHER_CORES, ({ otherCpuUs, seconds }) => otherCpuUs / seconds / 1e6),
    ],
  };

  function context(unit: string, value: (sample: Sample) => number): Figure {
    return { ...each(unit, value), isContext: true };
  }
}

/** How the requests a second of one compare with others': the medians of the rounds' ratios, as a remark. */
export function ratiosOf(
  name: string,
  samples: Map<string, Sample[]>,
  others = [...samples.keys()].filter((other) => other !== name),
): string {
  const perSecond = (who: string) =>
    (samples.get(who) ?? []).map(({ answered, seconds }) => answered / seconds);
  const own = perSecond(name);
  const texts = others.map((other) => {
    const theirs = perSecond(other);
    const ratios = own.map((value, round) => value / (theirs[round] ?? Number.NaN));
    return `${median(ratios).toFixed(2)} × ${other}`;
  });
  return `requests/s of ${name}: ${texts.join(', ')}`;
}
