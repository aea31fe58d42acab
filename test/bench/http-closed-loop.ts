import autocannon from 'autocannon';
import { cpuSince, markCpu, percentiles } from './http-figures.ts';
import type { Load, Sample } from './http-load.ts';

/** autocannon looks this often, in milliseconds, whether its time is over. */
const STOP_CHECK_MS = 100;

/**
 * A closed loop by autocannon: every connection sends its next request when the last one was answered. Its own histogram
 * has a resolution of a millisecond, so that the times are kept here.
 */
export async function closedLoop({ request, connections, seconds, watched }: Load): Promise<Sample> {
  const latencies: number[] = [];
  const statuses: Record<string, number> = {};
  let failures = 0;
  const { url, method, headers, body } = request;
  const mark = markCpu(watched);
  const started = performance.now();
  const options: autocannon.Options = {
    url,
    method,
    headers,
    ...(body !== undefined && { body }),
    connections,
    idReplacement: request.hasIds ?? false,
    // It is stopped below; this only keeps it from stopping by itself.
    duration: seconds + 60,
    sampleInt: STOP_CHECK_MS,
  };
  let running: autocannon.Instance | undefined;
  const ended = new Promise<void>((resolve, reject) => {
    running = autocannon(options, (error: unknown) => (error ? reject(error) : resolve()));
  });
  let after: (ReturnType<typeof cpuSince> & { seconds: number }) | undefined;
  const timer = setTimeout(() => {
    after = { ...cpuSince(mark, watched), seconds: (performance.now() - started) / 1000 };
    running?.stop();
  }, seconds * 1000);
  running?.on('response', (_client, statusCode, _bytes, ms) => {
    if (after) return;
    latencies.push(ms);
    statuses[statusCode] = (statuses[statusCode] ?? 0) + 1;
  });
  running?.on('reqError', () => {
    if (!after) failures += 1;
  });
  await ended;
  clearTimeout(timer);
  if (!after) throw new Error('autocannon has stopped before its time');
  return {
    answered: latencies.length,
    statuses,
    failures,
    latency: percentiles(latencies),
    ...after,
  };
}
