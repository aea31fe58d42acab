import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { freePort } from '../../src/local/free-port.ts';
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

const prometheus = await findDebianProgram({
  names: ['prometheus'],
  packages: ['prometheus'],
  path: 'usr/bin/prometheus',
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

async function opsOf(process: OrcProcess): Promise<string> {
  return String((await process.record(({ msg }) => msg === 'ops listens'))['url']);
}

async function metricsOf(process: OrcProcess): Promise<string> {
  return (await fetch(`${await opsOf(process)}/metrics`)).text();
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

describe.runIf(prometheus)('Prometheus', () => {
  /** Starts it as a scraper of both processes; resolves with its address. */
  async function start(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'orc-prometheus-'));
    const targets = [new URL(await opsOf(api)).host, new URL(await opsOf(worker)).host];
    const config = join(folder, 'prometheus.yml');
    await writeFile(
      config,
      `scrape_configs: [{ job_name: orc, scrape_interval: 1s, static_configs: [{ targets: ${JSON.stringify(targets)} }] }]`,
    );
    const address = `127.0.0.1:${await freePort()}`;
    const args = [
      `--config.file=${config}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=${address}`,
    ];
    const child = spawn(prometheus?.command ?? '', args, { env: prometheus?.env, stdio: 'ignore' });
    onTestFinished(async () => {
      const exited = once(child, 'exit');
      child.kill();
      await exited;
      await rm(folder, { recursive: true, force: true });
    });
    return address;
  }

  test('scrapes both processes, which report the same queue', async () => {
    const address = await start();
    const ask = async (query: string): Promise<string[]> => {
      const answer = await fetch(`http://${address}/api/v1/query?${new URLSearchParams({ query })}`);
      const { data } = (await answer.json()) as { data: { result: { value: [number, string] }[] } };
      return data.result.map(({ value: [, value] }) => value);
    };
    const within = { timeout: 30_000, interval: 200 };
    await expect.poll(() => ask('up').catch(() => []), within).toEqual(['1', '1']);
    await expect.poll(() => ask('orc_workers_alive'), within).toEqual(['1', '1']);
    expect(await ask('orc_queued_runs')).toEqual(['0', '0']);
    expect(await ask('sum(orc_requests_rejected_total{error="queue_unavailable"}) >= 0')).toHaveLength(1);
    expect(await ask('count(orc_event_loop_lag_seconds)')).toEqual(['2']);
  });
});

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
