import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { findDebianProgram } from '../support/debian-program.ts';
import { postTrigger } from '../support/http.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from '../support/orc-process.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { createAutomation, openStoreAt } from '../support/store.ts';

const promtool = await findDebianProgram({
  names: ['promtool'],
  packages: ['prometheus'],
  path: 'usr/bin/promtool',
});

const redis = await openPrivateRedis();
const env = { REDIS_URL: redis.url, OPS_PORT: '0' };
let api: OrcProcess & { url: string };
let worker: OrcProcess;

beforeAll(async () => {
  await redis.start();
  api = await startApiProcess(env);
  worker = await startWorkerProcess(env);
});

afterAll(async () => {
  await api.stop();
  await worker.stop();
});

async function metricsOf(process: OrcProcess): Promise<string> {
  const { url } = await process.record(({ msg }) => msg === 'ops listens');
  return (await fetch(`${url}/metrics`)).text();
}

/** What promtool finds to say about metrics in Prometheus' text format, and its exit code. */
async function check(metrics: string): Promise<[string, number | null]> {
  const child = spawn(promtool?.command ?? '', ['check', 'metrics'], { env: promtool?.env, stdio: 'pipe' });
  let said = '';
  for (const output of [child.stdout, child.stderr]) {
    output.on('data', (data: Buffer) => {
      said += data;
    });
  }
  child.stdin.end(metrics);
  const [code] = await once(child, 'close');
  return [said, code];
}

describe.runIf(promtool)('promtool', () => {
  test('has nothing to say against the metrics of either process, with Redis and without', async () => {
    const store = openStoreAt(redis.url, 'patient', 'orc');
    const key = await createAutomation(store, 'checked');
    await postTrigger(api.url, 'checked', key);
    await postTrigger(api.url, 'checked', mintApiKey());
    await worker.record(({ msg }) => msg === 'run ended');
    await expect.poll(() => metricsOf(worker), { timeout: 20_000 }).toContain('orc_runs_ended_total{');
    expect(await metricsOf(api)).toContain('orc_runs_accepted_total{');
    for (const process of [api, worker]) expect(await check(await metricsOf(process))).toEqual(['', 0]);
    await redis.kill();
    for (const process of [api, worker]) expect(await check(await metricsOf(process))).toEqual(['', 0]);
  });

  test('would say it', async () => {
    const [said, code] = await check('# TYPE orc_x counter\norc_x 1\n');
    expect(said).toContain('no help text');
    expect(code).not.toBe(0);
  });
});
