import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import type { Store } from '../../src/store/store.ts';
import { postTrigger } from '../support/http.ts';
import { type OrcProcess, startApiProcess, startOrc, startWorkerProcess } from '../support/orc-process.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { RawConnection } from '../support/raw-http.ts';
import { connectStore, createAutomation, script } from '../support/store.ts';

const WITHIN = { timeout: 20_000, interval: 50 };

const redis = await openPrivateRedis();
const env = { REDIS_URL: redis.url, OPS_PORT: '0' };
let store: Store;
let api: OrcProcess & { url: string };
let apiOps: string;
let key: string;

/** A run goes on while this file is there. */
const HOLD = join(redis.dataDir, 'hold');

async function opsUrl(process: OrcProcess): Promise<string> {
  return String((await process.record(({ msg }) => msg === 'ops listens'))['url']);
}

async function get(
  ops: string,
  path: string,
): Promise<{ status: number; body: string; type: string | null }> {
  const response = await fetch(`${ops}${path}`);
  return {
    status: response.status,
    body: await response.text(),
    type: response.headers.get('content-type'),
  };
}

async function ready(ops: string): Promise<[number, unknown]> {
  const { status, body } = await get(ops, '/ready');
  return [status, JSON.parse(body)];
}

/** The value of one series, named as it is printed. */
async function sample(ops: string, series: string): Promise<number | undefined> {
  const { body } = await get(ops, '/metrics');
  const line = body.split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length));
}

beforeAll(async () => {
  await redis.start();
  store = connectStore(redis.url, 'patient', 'orc');
  const hold = `const t = setInterval(() => require('fs').existsSync('${HOLD}') || clearInterval(t), 10)`;
  key = await createAutomation(store, 'watched', { action: script(hold) });
  api = await startApiProcess(env);
  apiOps = await opsUrl(api);
});

afterAll(async () => {
  await api.stop();
  await store.close();
});

async function startWatchedWorker(): Promise<OrcProcess & { ops: string }> {
  const worker = await startWorkerProcess(env);
  onTestFinished(async () => {
    await worker.stop();
  });
  return { ...worker, ops: await opsUrl(worker) };
}

describe('/metrics', () => {
  test('counts what the API accepts and rejects, and what the worker executes, and both know the queue', async () => {
    expect((await postTrigger(api.url, 'watched', key)).status).toBe(202);
    expect((await postTrigger(api.url, 'watched', mintApiKey())).status).toBe(401);
    expect((await postTrigger(api.url, 'nowhere', mintApiKey())).status).toBe(401);
    expect(await sample(apiOps, 'orc_workers_alive')).toBe(0);
    expect(await sample(apiOps, 'orc_queued_runs')).toBe(1);
    expect(await sample(apiOps, 'orc_oldest_queued_run_age_seconds')).toBeGreaterThan(0);
    expect(await sample(apiOps, 'orc_oldest_queued_run_age_seconds')).toBeLessThan(60);
    expect(await sample(apiOps, 'orc_queue_jobs{state="waiting"}')).toBe(1);
    expect(await sample(apiOps, 'orc_runs_accepted_total{automation="watched"}')).toBe(1);
    expect(await sample(apiOps, 'orc_accept_duration_seconds_count')).toBe(1);
    expect(await sample(apiOps, 'orc_requests_rejected_total{error="invalid_api_key"}')).toBe(2);
    expect(await sample(apiOps, 'orc_requests_rejected_total{error="queue_full"}')).toBe(0);
    expect((await get(apiOps, '/metrics')).body).not.toContain('nowhere');

    const worker = await startWatchedWorker();
    await worker.record(({ msg }) => msg === 'run ended');
    await expect
      .poll(() => sample(worker.ops, 'orc_runs_ended_total{automation="watched",status="succeeded"}'), WITHIN)
      .toBe(1);
    expect(await sample(worker.ops, 'orc_run_duration_seconds_count{automation="watched"}')).toBe(1);
    expect(await sample(worker.ops, 'orc_event_loop_lag_seconds')).toBeGreaterThanOrEqual(0);
    for (const ops of [apiOps, worker.ops]) {
      expect(await sample(ops, 'orc_redis_up')).toBe(1);
      await expect.poll(() => sample(ops, 'orc_workers_alive'), WITHIN).toBe(1);
      expect(await sample(ops, 'orc_queued_runs')).toBe(0);
      expect(await sample(ops, 'orc_oldest_queued_run_age_seconds')).toBe(0);
    }
  });

  test('tells a repeated request from a new run', async () => {
    const before = await sample(apiOps, 'orc_runs_accepted_total{automation="watched"}');
    for (let count = 0; count < 3; count++) {
      const { status } = await fetch(`${api.url}/orc/api/automation-triggers/watched`, {
        method: 'POST',
        headers: { 'x-api-key': key, 'idempotency-key': 'one' },
      });
      expect(status).toBe(202);
    }
    expect(await sample(apiOps, 'orc_runs_accepted_total{automation="watched"}')).toBe(Number(before) + 1);
    expect(await sample(apiOps, 'orc_requests_replayed_total')).toBe(2);
  });

  test.each([
    ['is gone', () => redis.kill(), () => redis.start()],
    ['hangs', async () => redis.freeze(), async () => redis.thaw()],
  ])('answers while Redis %s, without what only Redis knows', async (_, away, back) => {
    const worker = await startWatchedWorker();
    await away();
    for (const ops of [apiOps, worker.ops]) {
      const { status, body, type } = await get(ops, '/metrics');
      expect([status, type]).toEqual([200, 'text/plain; version=0.0.4; charset=utf-8']);
      expect(body).toContain('\norc_redis_up 0\n');
      expect(body).not.toMatch(/orc_workers_alive|orc_queued_runs|orc_queue_jobs/);
      expect(body).toContain('orc_event_loop_lag_seconds');
    }
    await expect
      .poll(() => ready(apiOps), WITHIN)
      .toEqual([503, expect.objectContaining({ status: 'not_ready' })]);
    await expect
      .poll(() => ready(worker.ops), WITHIN)
      .toEqual([503, { status: 'not_ready', reason: 'Redis does not answer.' }]);
    expect((await get(apiOps, '/live')).status).toBe(200);
    expect((await get(worker.ops, '/live')).status).toBe(200);
    await back();
    for (const ops of [apiOps, worker.ops]) {
      await expect.poll(() => sample(ops, 'orc_workers_alive'), WITHIN).toBe(1);
      await expect.poll(() => ready(ops), WITHIN).toEqual([200, { status: 'ready' }]);
    }
  });
});

describe('/ready', () => {
  test('is off from the beginning of the end, while a run in progress still goes on', async () => {
    const worker = await startWatchedWorker();
    expect(await ready(worker.ops)).toEqual([200, { status: 'ready' }]);
    await writeFile(HOLD, '');
    await postTrigger(api.url, 'watched', key);
    await worker.record(({ msg }) => msg === 'run started');
    const stopped = worker.stop();
    await worker.record(({ msg }) => msg === 'stopping');
    expect(await ready(worker.ops)).toEqual([
      503,
      { status: 'not_ready', reason: 'The process is stopping.' },
    ]);
    expect((await get(worker.ops, '/live')).status).toBe(200);
    await rm(HOLD);
    expect(await stopped).toBe(0);
  });

  test('is off while the API still answers what it has begun to read', async () => {
    const other = await startApiProcess(env);
    const ops = await opsUrl(other);
    expect(await ready(ops)).toEqual([200, { status: 'ready' }]);
    const client = await RawConnection.to(Number(new URL(other.url).port));
    client.write('GET /orc/health HTTP/1.1\r\n');
    const sending = setInterval(() => client.write('X: slow\r\n'), 10);
    const stopped = other.stop();
    await expect
      .poll(() => ready(ops), WITHIN)
      .toEqual([503, { status: 'not_ready', reason: 'The process is stopping.' }]);
    clearInterval(sending);
    client.write('Host: a\r\n\r\n');
    expect(await client.nextAnswer()).toMatchObject({ statusCode: 200 });
    expect(await stopped).toBe(0);
  });
});

describe('a private listener that only this machine reaches', () => {
  /** As a browser sends it to a name that another site leads to this machine. */
  async function statusFor(host: string, path: string, ops = apiOps): Promise<number | undefined> {
    const connection = await RawConnection.to(Number(new URL(ops).port));
    onTestFinished(() => connection.destroy());
    connection.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    return (await connection.nextAnswer())?.statusCode;
  }

  test.each(['/metrics', '/live', '/ready'])(
    'tells nothing at %s to who asks for another host',
    async (path) => {
      for (const host of [
        'evil.example',
        'evil.example:9464',
        '127.0.0.1.evil.example',
        'localhost@evil',
        '',
      ]) {
        expect([host, await statusFor(host, path)]).toEqual([host, 403]);
      }
      for (const host of ['localhost', 'localhost:9464', '127.0.0.1:9464', '127.1.2.3', '[::1]:9464']) {
        expect([host, await statusFor(host, path)]).toEqual([host, 200]);
      }
    },
  );

  test('answers for any host when others are to reach it', async () => {
    const other = await startApiProcess({ ...env, OPS_HOST: '0.0.0.0' });
    onTestFinished(async () => void (await other.stop()));
    const ops = (await opsUrl(other)).replace('0.0.0.0', '127.0.0.1');
    expect(await statusFor('orc-api.monitoring.svc:9464', '/metrics', ops)).toBe(200);
  });
});

test.each(['/metrics', '/live', '/ready'])('%s is not on the public port', async (path) => {
  expect((await fetch(`${api.url}${path}`)).status).toBe(404);
});

test('without OPS_PORT there is no such listener', async () => {
  const other = await startApiProcess({ REDIS_URL: redis.url });
  await other.stop();
  expect(other.lines.join('\n')).not.toContain('ops listens');
});

test.each(['api', 'worker'])('orc %s does not start when its private port is taken', async (name) => {
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const other = startOrc([name], { env: { ...env, PORT: '0', OPS_PORT: `${port}` } });
  await other.line('EADDRINUSE');
  await once(other.child, 'close');
  expect(other.child.exitCode).toBe(1);
});
