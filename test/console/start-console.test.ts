import { createServer } from 'node:net';
import { expect, inject, onTestFinished, test } from 'vitest';
import { runOrcProcess, startOrc } from '../support/orc-process.ts';
import { openTestStore } from '../support/store.ts';

const { prefix } = openTestStore();
const env = { REDIS_PREFIX: prefix, CONSOLE_PORT: '0' };

test('orc console listens on a port of its own, serves the console and nothing of the API, and ends on SIGTERM', async () => {
  const running = startOrc(['console'], { env: { ...env, REDIS_URL: inject('redisUrl'), OPS_PORT: '0' } });
  const { url } = (await running.record(({ msg }) => msg === 'console listens')) as unknown as {
    url: string;
  };
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  const ops = (await running.record(({ msg }) => msg === 'ops listens')) as unknown as { url: string };
  expect(await (await fetch(`${ops.url}/ready`)).json()).toEqual({ status: 'ready' });
  const page = await fetch(url);
  expect([page.status, (await page.text()).includes('orc operators add NAME --role admin')]).toEqual([
    401,
    true,
  ]);
  for (const path of ['/orc/health', '/openapi.json', '/llms.txt', '/docs', '/metrics']) {
    expect((await fetch(url + path)).status).toBe(401);
  }
  expect(await running.stop('SIGTERM')).toBe(0);
});

test('orc console starts without Redis, and says on every page that Redis is away', async () => {
  const running = startOrc(['console'], { env: { ...env, REDIS_URL: 'redis://127.0.0.1:1' } });
  const { url } = (await running.record(({ msg }) => msg === 'console listens')) as unknown as {
    url: string;
  };
  const page = await fetch(url, { headers: { cookie: `orc_session=${'A'.repeat(43)}` } });
  expect([page.status, (await page.text()).includes('Redis is away')]).toEqual([503, true]);
  expect(await running.stop('SIGTERM')).toBe(0);
});

test('a port that is taken ends orc console with one sentence', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void other.close());
  await new Promise((resolve) => other.once('listening', resolve));
  const { port } = other.address() as { port: number };
  const { code, stderr } = await runOrcProcess(['console'], {
    env: { ...env, REDIS_URL: inject('redisUrl'), CONSOLE_PORT: `${port}` },
  });
  expect([code, stderr]).toEqual([1, `orc: listen EADDRINUSE: address already in use 127.0.0.1:${port}\n`]);
});

test('a header for single sign-on without a proxy that may send it is refused at the start', async () => {
  const { code, stderr } = await runOrcProcess(['console'], {
    env: { ...env, REDIS_URL: inject('redisUrl'), CONSOLE_USER_HEADER: 'X-Forwarded-User' },
  });
  expect(code).toBe(1);
  expect(stderr).toContain(
    'CONSOLE_TRUST_PROXY is missing, without which anybody could send CONSOLE_USER_HEADER',
  );
});
