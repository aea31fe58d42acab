import { SLUG, startInstallation } from '../http-installation.ts';
import type { Sample } from '../http-load.ts';
import { startNoOp } from '../http-servers.ts';
import { orcTrigger, trigger } from '../http-triggers.ts';
import { type Contestant, takeTurns } from '../http-turns.ts';
import { type Figure, OTHER_CORES, type Part, type Row } from '../part.ts';

/** So many that a request hardly ever waits for a free connection below saturation. */
const CONNECTIONS = 128;

/** In bytes. */
const PAYLOAD = 100;

/** Who answers less than this share of what is due is saturated, and is asked no more. */
const SATURATED = 0.9;

export const open: Part = {
  name: 'open',
  summary: 'times at fixed arrival rates, from when each request was due, up to saturation',
  async run(context) {
    const { redis, apiKey, orc, generator } = await startInstallation(context);
    const noOp = await startNoOp(context);
    await redis.keep();
    let contestants: Contestant[] = [
      {
        ...{ name: 'no-op', server: noOp, status: 202 },
        request: trigger(`${noOp.url}/trigger/${SLUG}`, apiKey, PAYLOAD),
      },
      {
        ...{ name: 'orc', server: orc, status: 202, redis },
        request: orcTrigger(orc, SLUG, apiKey, PAYLOAD),
      },
    ];

    const rows: Row[] = [];
    for (const rate of context.rates) {
      if (contestants.length === 0) break;
      context.progress(`${rate} requests a second`);
      const turns = { ...context, generator, connections: CONNECTIONS, rate };
      const samples = await takeTurns(context, contestants, turns);
      rows.push({ name: `${rate}/s`, figures: figures(samples) });
      contestants = contestants.filter(({ name }) =>
        (samples.get(name) ?? []).some(({ answered, seconds }) => answered >= SATURATED * rate * seconds),
      );
    }
    return [
      {
        title: `Open model, ${PAYLOAD} B, ${CONNECTIONS} connections, appendfsync always`,
        rows,
        remarks: [
          'ms from when a request was due; × orc to no-op, round by round; "late": how late the client sent, which is part of both',
          `who answered less than ${SATURATED} of what was due was saturated and took part no more; requests without an answer 2 s after the last one was due count as long as they waited`,
        ],
      },
    ];
  },
};

function figures(samples: Map<string, Sample[]>): Figure[] {
  const [noOp = [], orc = []] = ['no-op', 'orc'].map((name) => samples.get(name));
  const compared = (unit: string, value: (sample: Sample) => number): Figure[] => [
    { unit: `${unit} no-op`, values: noOp.map(value) },
    { unit: `${unit} orc`, values: orc.map(value) },
    {
      unit: `${unit} ×`,
      values: orc.flatMap((sample, round) => (noOp[round] ? [value(sample) / value(noOp[round])] : [])),
    },
  ];
  return [
    { unit: 'answered/s no-op', values: noOp.map(({ answered, seconds }) => answered / seconds) },
    { unit: 'answered/s orc', values: orc.map(({ answered, seconds }) => answered / seconds) },
    ...compared('p50', ({ latency }) => latency.p50),
    ...compared('p99', ({ latency }) => latency.p99),
    ...compared('p99.9', ({ latency }) => latency.p999),
    { unit: 'late p99 no-op', values: noOp.map(({ lateP99 = Number.NaN }) => lateP99) },
    { unit: 'late p99 orc', values: orc.map(({ lateP99 = Number.NaN }) => lateP99) },
    {
      unit: OTHER_CORES,
      values: [...noOp, ...orc].map(({ otherCpuUs, seconds }) => otherCpuUs / seconds / 1e6),
    },
    {
      unit: 'orc CPU µs',
      values: orc.map(({ cpuUs: [us = Number.NaN], answered }) => us / answered),
    },
  ];
}
