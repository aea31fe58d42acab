import { cpuSince, markCpu, percentiles } from './http-figures.ts';
import type { Load, Sample } from './http-load.ts';

/** A closed loop by Node's own `fetch`, as scripts use it: each of so many asks again when it was answered. */
export async function fetchLoop({ request, connections, seconds, watched }: Load): Promise<Sample> {
  const { url, method, headers, body } = request;
  const latencies: number[] = [];
  const statuses: Record<string, number> = {};
  let failures = 0;
  const mark = markCpu(watched);
  const started = performance.now();
  const isOver = () => performance.now() - started > seconds * 1000;
  const ask = async () => {
    while (!isOver()) {
      const sent = performance.now();
      try {
        const answer = await fetch(url, { method, headers, ...(body !== undefined && { body }) });
        await answer.arrayBuffer();
        latencies.push(performance.now() - sent);
        statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
      } catch {
        failures += 1;
      }
    }
  };
  await Promise.all(Array.from({ length: connections }, ask));
  return {
    answered: latencies.length,
    seconds: (performance.now() - started) / 1000,
    statuses,
    failures,
    latency: percentiles(latencies),
    ...cpuSince(mark, watched),
  };
}
