import { once } from 'node:events';
import { request } from 'node:http';
import { describe, expect, onTestFinished, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { type OrcProcess, startApiProcess, startOrc } from '../support/orc-process.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { acceptRun, createTriggered } from '../support/runs.ts';
import { openStoreAt, openTestStore } from '../support/store.ts';

const store = openTestStore();
const redis = await openPrivateRedis();

const RESUME: [string, string] = ['PUT', '/queues/api/queues/runs/resume'];

async function start(env: NodeJS.ProcessEnv): Promise<{ api: OrcProcess; url: string; port: number }> {
  const api = await startApiProcess({ ...store.env, OPS_PORT: '0', ...env });
  onTestFinished(async () => {
    await api.stop();
  });
  const { port } = new URL(String((await api.record(({ msg }) => msg === 'ops listens'))['url']));
  return { api, url: `http://127.0.0.1:${port}`, port: Number(port) };
}

/** The status of an answer to a request with headers that fetch would not send. */
async function statusOf(
  port: number,
  headers: Record<string, string>,
  [method, path] = ['GET', '/queues/api/queues'],
): Promise<unknown> {
  const sent = request({ host: '127.0.0.1', port, path, method, headers }).end();
  const [response] = await once(sent, 'response');
  response.resume();
  return response.statusCode;
}

async function queues(url: string): Promise<{ name: string; readOnlyMode: boolean; jobs: unknown[] }[]> {
  const answer = await fetch(`${url}/queues/api/queues?activeQueue=runs&status=waiting`);
  return ((await answer.json()) as { queues: { name: string; readOnlyMode: boolean; jobs: unknown[] }[] })
    .queues;
}

function pause(url: string): Promise<Response> {
  return fetch(`${url}/queues/api/queues/runs/pause`, { method: 'PUT' });
}

describe('/queues', () => {
  test('shows runs with their payloads, and changes nothing unless that is switched on', async () => {
    const runId = await acceptRun(store, await createTriggered(store, 'shown'), '{"shown":"payload"}');
    const { url } = await start({ OPS_QUEUES: 'read' });
    const page = await fetch(`${url}/queues`);
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    expect(await page.text()).toContain('<base href="/queues/" />');
    const [queue] = await queues(url);
    expect(queue).toMatchObject({ name: 'runs', readOnlyMode: true, jobs: [{ id: runId, name: 'shown' }] });
    expect(JSON.stringify(queue)).toContain('payload');
    expect((await pause(url)).status).toBe(405);

    const { url: writable } = await start({ OPS_QUEUES: 'write' });
    expect((await pause(writable)).status).toBe(200);
    const resumed = await fetch(`${writable}/queues/api/queues/runs/resume`, { method: 'PUT' });
    expect(resumed.status).toBe(200);
  });

  test('is not there unless it is switched on', async () => {
    const { url } = await start({});
    expect((await fetch(`${url}/queues`)).status).toBe(404);
  });

  test('answers only who names this machine, and no page of another site', async () => {
    const { port } = await start({ OPS_QUEUES: 'write' });
    expect(await statusOf(port, {})).toBe(200);
    expect(await statusOf(port, { host: `localhost:${port}` })).toBe(200);
    expect(await statusOf(port, { host: 'rebound.example.com' })).toBe(403);
    expect(await statusOf(port, { host: '127.0.0.1.example.com' })).toBe(403);
    expect(await statusOf(port, { 'sec-fetch-site': 'cross-site' }, RESUME)).toBe(403);
    expect(await statusOf(port, { 'sec-fetch-site': 'same-site' }, RESUME)).toBe(403);
    expect(await statusOf(port, { 'sec-fetch-site': 'same-origin' }, RESUME)).toBe(200);
    expect(await statusOf(port, { 'sec-fetch-site': 'cross-site' })).toBe(200);
  });

  test('asks for its token, which nothing else does', async () => {
    const token = 'a-token-of-operators';
    const { api, url, port } = await start({ OPS_HOST: '0.0.0.0', OPS_QUEUES: 'read', OPS_TOKEN: token });
    const basic = (password: string) => `Basic ${Buffer.from(`anyone:${password}`).toString('base64')}`;
    const refused = await fetch(`${url}/queues`);
    expect([refused.status, refused.headers.get('www-authenticate')]).toEqual([
      401,
      'Basic realm="orc", charset="UTF-8"',
    ]);
    expect((await fetch(`${url}/queues/static/images/logo.svg`)).status).toBe(401);
    for (const wrong of [basic('wrong'), basic(''), 'Bearer', `Bearer ${mintApiKey()}`, token]) {
      expect(await statusOf(port, { authorization: wrong })).toBe(401);
    }
    for (const authorization of [basic(token), `Bearer ${token}`]) {
      expect(await statusOf(port, { authorization })).toBe(200);
    }
    expect((await fetch(`${url}/ready`)).status).toBe(200);
    expect(api.lines.join('\n')).not.toContain(token);
  });

  test('shows the queue as soon as Redis is there', async () => {
    const { url } = await start({ REDIS_URL: redis.url, REDIS_PREFIX: 'late', OPS_QUEUES: 'read' });
    expect(await queues(url)).toEqual([]);
    await redis.start();
    await acceptRun(
      openStoreAt(redis.url, 'patient', 'late'),
      await createTriggered(openStoreAt(redis.url, 'patient', 'late'), 'late'),
    );
    await expect
      .poll(() => queues(url), { timeout: 20_000 })
      .toEqual([expect.objectContaining({ name: 'runs' })]);
  });
});

test.each(['api', 'worker'])('orc %s does not start where strangers could open /queues', async (name) => {
  const env = { ...store.env, OPS_PORT: '0', OPS_HOST: '0.0.0.0', OPS_QUEUES: 'read' };
  const other = startOrc([name], { env });
  await other.line('OPS_TOKEN is missing: Password for');
  await once(other.child, 'close');
  expect(other.child.exitCode).toBe(1);
});
