import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../src/local/free-port.ts';
import { readSite } from '../../src/pages/site.ts';
import { findDebianProgram } from '../support/debian-program.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from '../support/orc-process.ts';
import { codeBlock } from '../support/pages.ts';
import { openPrivateRedis } from '../support/private-redis.ts';

const checkHttp = await findDebianProgram({
  names: ['check_http', '/usr/lib/nagios/plugins/check_http'],
  packages: ['monitoring-plugins-basic'],
  path: 'usr/lib/nagios/plugins/check_http',
});
const blackbox = await findDebianProgram({
  names: ['blackbox_exporter', 'prometheus-blackbox-exporter'],
  packages: ['prometheus-blackbox-exporter'],
  path: 'usr/bin/prometheus-blackbox-exporter',
});

/** A worker that is gone is known as soon as it says so; an outage, as soon as the next sample fails. */
const SEEN_WITHIN = { timeout: 20_000, interval: 200 };

const recipes = readSite().pages.find(({ path }) => path === '/docs/recipes')?.markdown ?? '';
const redis = await openPrivateRedis();
let api: OrcProcess & { url: string };

beforeAll(async () => {
  await redis.start();
  api = await startApiProcess({ REDIS_URL: redis.url });
});

afterAll(() => api.stop());

/** Lets a monitor see the service well, out, well again, and without a worker. */
async function expectSeen(sees: () => Promise<boolean>): Promise<void> {
  const worker = await startWorkerProcess({ REDIS_URL: redis.url });
  try {
    await expect.poll(sees, SEEN_WITHIN).toBe(true);
    await redis.kill();
    await expect.poll(sees, SEEN_WITHIN).toBe(false);
    await redis.start();
    await expect.poll(sees, SEEN_WITHIN).toBe(true);
  } finally {
    await worker.stop();
  }
  await expect.poll(sees, SEEN_WITHIN).toBe(false);
}

describe.runIf(checkHttp)('check_http', () => {
  const command = codeBlock(recipes, ({ code }) => code.startsWith('check_http '));

  /** Runs the command of the recipes; resolves with its exit code and what it printed. */
  function check(line: string): Promise<{ code: number | null; stdout: string }> {
    const { hostname, port } = new URL(api.url);
    const PATH = `${dirname(checkHttp?.command ?? '')}:${checkHttp?.env['PATH']}`;
    const env = { ...checkHttp?.env, PATH, ORC_HOST: hostname };
    return new Promise((resolve) => {
      const child = execFile('sh', ['-c', `${line.trim()} --port=${port}`], { env }, (_, stdout) =>
        resolve({ code: child.exitCode, stdout }),
      );
    });
  }

  test('sees an outage, its end, and a missing worker', async () => {
    await expectSeen(async () => {
      const { code, stdout } = await check(command);
      expect([stdout, code]).toEqual(
        code === 0 ? [expect.stringMatching(/^HTTP OK/), 0] : [expect.stringMatching(/^HTTP CRITICAL/), 2],
      );
      return code === 0;
    });
  });

  test('sees no problem without a worker when it is not asked for the keyword', async () => {
    const { code } = await check(command.replace(/ --string=.*/, ''));
    expect(code).toBe(0);
  });
});

describe.runIf(blackbox)('blackbox_exporter', () => {
  /** Starts it with the configuration of the recipes; resolves with its address. */
  async function start(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'orc-blackbox-'));
    const config = join(folder, 'blackbox.yml');
    await writeFile(
      config,
      codeBlock(recipes, ({ file }) => file === 'blackbox.yml'),
    );
    const address = `127.0.0.1:${await freePort()}`;
    const args = [`--config.file=${config}`, `--web.listen-address=${address}`];
    const child = spawn(blackbox?.command ?? '', args, { env: blackbox?.env, stdio: 'ignore' });
    onTestFinished(async () => {
      const exited = once(child, 'exit');
      child.kill();
      await exited;
      await rm(folder, { recursive: true, force: true });
    });
    const isUp = () =>
      fetch(`http://${address}/-/healthy`).then(
        ({ ok }) => ok,
        () => false,
      );
    await expect.poll(isUp, SEEN_WITHIN).toBe(true);
    return address;
  }

  test('sees an outage, its end, and a missing worker', async () => {
    const address = await start();
    await expectSeen(async () => {
      const query = new URLSearchParams({ module: 'orc_health', target: `${api.url}/orc/health` });
      const metrics = await (await fetch(`http://${address}/probe?${query}`)).text();
      const [, success] = /^probe_success ([01])$/m.exec(metrics) ?? [];
      expect(success).toBeDefined();
      return success === '1';
    });
  });
});
