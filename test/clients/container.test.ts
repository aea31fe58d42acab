import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { freePort } from '../../src/local/free-port.ts';
import { type RunningRedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { postTrigger } from '../support/http.ts';
import {
  buildImages,
  type Container,
  canBuildImages,
  type Image,
  killContainers,
  startContainer,
} from '../support/image.ts';
import { openCodeConfiguration } from '../support/opencode.ts';
import { readProjectFile } from '../support/repository.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import { createRepository, git } from '../worker/workspace/repositories.ts';

/** How long it takes to start Node and orc on a busy machine, in milliseconds. */
const SOON = { timeout: 20_000, interval: 50 };

/** What orc is executed by. */
const NODE = '/usr/local/lib/orc/node';

/** The repository is not that of the user who executes the tests. */
const SAFE = ['-c', 'safe.directory=*'];

/** The worker's, as in docker-compose.yml. */
const WORKER = '1001:1001';

describe.runIf(canBuildImages())('the image of the Dockerfile', () => {
  let folder: string;
  let image: Image;
  let imageOf: (target: string) => Image;
  let redis: RunningRedisServer;
  let env: Record<string, string>;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'orc-image-'));
    imageOf = await buildImages(folder);
    image = imageOf('orc');
    const server = await findRedisServer({ env: process.env, report: () => undefined });
    redis = await startRedisServer({
      server,
      dataDir: join(folder, 'redis'),
      persistence: 'none',
      listen: { port: 0 },
    });
    env = { REDIS_URL: redis.url, HOST: '127.0.0.1' };
  }, 600_000);

  afterAll(async () => {
    killContainers();
    await redis?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** Executes `orc …` to its end in a container, and returns what it printed. */
  async function orc(...command: string[]): Promise<string> {
    const container = await startContainer(image, { env, command });
    expect([await container.exited, container.stdout()]).toEqual([0, expect.any(String)]);
    return container.stdout();
  }

  async function startWorker(entrypoint?: string[]): Promise<Container> {
    const worker = await startContainer(image, {
      // Other containers have a loopback interface of their own, and with it this port.
      env: { ...env, OPS_PORT: `${await freePort()}` },
      command: ['worker'],
      user: WORKER,
      ...(entrypoint && { entrypoint }),
    });
    await expect.poll(worker.stdout, SOON).toContain('worker takes runs');
    return worker;
  }

  async function startApi(): Promise<Container & { url: string; opsPort: number }> {
    const [port, opsPort] = [await freePort(), await freePort()];
    const api = await startContainer(image, { env: { ...env, PORT: `${port}`, OPS_PORT: `${opsPort}` } });
    await expect.poll(api.stdout, SOON).toContain('api listens');
    return { ...api, url: `http://127.0.0.1:${port}`, opsPort };
  }

  /** Carries out the healthcheck, and returns its exit code. */
  async function checkHealth(opsPort: number): Promise<number> {
    const check = await startContainer(image, {
      entrypoint: [],
      command: image.healthcheck,
      env: { OPS_PORT: `${opsPort}` },
    });
    return check.exited;
  }

  async function stop(container: Container): Promise<number> {
    container.kill('SIGTERM');
    return container.exited;
  }

  test('holds the compiled program and what it needs, and nothing that only builds it', async () => {
    const { layer } = image;
    expect((await readdir(join(layer, 'app'))).sort()).toEqual([
      'dist',
      'node_modules',
      'openapi',
      'package.json',
    ]);
    for (const name of ['fastify', 'bullmq'])
      expect(existsSync(join(layer, 'app/node_modules', name))).toBe(true);
    for (const name of ['typescript', 'vitest', '@biomejs']) {
      expect(existsSync(join(layer, 'app/node_modules', name))).toBe(false);
    }
    // What is added to the system besides depends on what the system has: git brings Perl along.
    const size = execFileSync('du', ['--summarize', '--bytes', join(layer, 'app')]);
    const bytes = Number.parseInt(String(size), 10);
    console.log(`orc takes ${(bytes / 1e6).toFixed(1)} MB of the image.`);
    expect(bytes).toBeLessThan(60e6);
    const lists = await startContainer(image, { entrypoint: ['ls'], command: ['/var/lib/apt/lists'] });
    expect([await lists.exited, lists.stdout()]).toEqual([0, '']);
  });

  test('has git, with what it needs for HTTPS and SSH', async () => {
    const container = await startContainer(image, {
      env,
      user: WORKER,
      entrypoint: ['sh', '-c'],
      command: [
        'git --version && ls "$(git --exec-path)/git-remote-https" /etc/ssl/certs/ca-certificates.crt && command -v ssh',
      ],
    });
    expect(await container.exited).toBe(0);
  });

  test('serves and executes as an ordinary user on a root filesystem that cannot be written to', async () => {
    const script =
      'id -u; id -G; pwd; touch file && echo "here: yes"; touch /app/file 2>&1 || true; touch /etc/file 2>&1';
    const api = await startApi();
    const worker = await startWorker();
    await expect.poll(() => checkHealth(api.opsPort), SOON).toBe(0);
    const created = JSON.parse(
      await orc(
        'automations',
        'create',
        'probe',
        '--json',
        '--attempts',
        '1',
        '--',
        'sh',
        '-c',
        `${script} || true`,
      ),
    );
    const { status, body } = await postTrigger(api.url, 'probe', created.apiKey);
    expect(status).toBe(202);
    await expect.poll(worker.stdout, SOON).toContain('"run ended"');
    const logs = await orc('runs', 'logs', String(body['runId']));
    expect(logs).toMatch(/1001\n.*1001\n.*\/tmp\/.*\n.*here: yes\n/s);
    expect(logs.match(/Read-only file system/g)).toHaveLength(2);
    expect(await Promise.all([stop(api), stop(worker)])).toEqual([0, 0]);
  });

  test('a command reads neither the environment nor the memory of the worker, nor of what else has its secrets', async () => {
    const secret = 'canary-of-the-worker';
    const worker = await startContainer(image, {
      env: { ...env, OPS_PORT: `${await freePort()}`, CANARY: secret },
      command: ['worker'],
      user: WORKER,
    });
    await expect.poll(worker.stdout, SOON).toContain('worker takes runs');
    // The engine executes it again and again in the worker's container, with the worker's environment.
    const [program = ''] = image.healthcheck;
    const look = `
      for file in environ mem maps fd/0; do head -c 1 /proc/$PPID/$file > /dev/null 2>&1 && echo "reads $file of $PPID"; done
      cat /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n' | grep CANARY
      tr '\\0' '\\n' < /proc/$$/environ | grep ^ORC_WORKER
      for pid in $PPID 1; do cat /proc/$pid/cmdline | tr '\\0' ' ' | head -c 60; echo; done
      ${program} -e 'try { require("fs").readFileSync("/proc/self/environ"); console.log("readable") } catch (error) { console.log(error.code) }'`;
    const created = JSON.parse(
      await orc('automations', 'create', 'curious', '--json', '--attempts', '1', '--', 'sh', '-c', look),
    );
    const api = await startApi();
    const { body } = await postTrigger(api.url, 'curious', created.apiKey);
    await expect.poll(worker.stdout, SOON).toContain('"run ended"');
    const logs = await orc('runs', 'logs', String(body['runId']));
    // The look itself works: it reads an environment, and knows the processes.
    expect(logs).toContain('ORC_WORKER=');
    expect(logs).toMatch(/node --min-semi.*tini --/s);
    expect(logs).not.toContain('reads');
    expect(logs).not.toContain(secret);
    expect(logs).toContain('EACCES');
    expect(await Promise.all([stop(api), stop(worker)])).toEqual([0, 0]);
  });

  test('ends on SIGTERM as soon as the run in progress has ended', async () => {
    const api = await startApi();
    const worker = await startWorker();
    const created = JSON.parse(
      await orc('automations', 'create', 'second', '--json', '--', 'sh', '-c', 'sleep 2; echo done'),
    );
    const { body } = await postTrigger(api.url, 'second', created.apiKey);
    await expect.poll(worker.stdout, SOON).toContain('"run started"');
    const startedAt = Date.now();
    expect(await stop(worker)).toBe(0);
    expect(Date.now() - startedAt).toBeLessThan(9000);
    expect(await orc('runs', 'show', String(body['runId']), '--json')).toContain('"status": "succeeded"');
    expect(await stop(api)).toBe(0);
  });

  test('ends on SIGTERM before Node listens to signals, which Node as process 1 would not', async () => {
    const wait = ['node', '-e', "console.log('up'); setTimeout(() => {}, 60_000)"];
    const init = image.entrypoint.slice(0, image.entrypoint.indexOf(NODE));
    const withInit = await startContainer(image, { entrypoint: init, command: wait });
    const without = await startContainer(image, { entrypoint: [], command: wait });
    await expect.poll(withInit.stdout, SOON).toBe('up\n');
    await expect.poll(without.stdout, SOON).toBe('up\n');
    without.kill('SIGTERM');
    expect(await stop(withInit)).toBe(143);
    expect(existsSync(`/proc/${without.pid}`)).toBe(true);
    without.kill('SIGKILL');
    await without.exited;
  });

  test('leaves no zombies of what commands leave behind, which Node as process 1 would', async () => {
    const api = await startApi();
    const created = JSON.parse(
      await orc(
        'automations',
        'create',
        'orphans',
        '--json',
        '--',
        'sh',
        '-c',
        '(setsid sleep 60 &) ; (sleep 0.1 &)',
      ),
    );
    const zombiesAfterRun = async (entrypoint?: string[]) => {
      const worker = await startWorker(entrypoint);
      expect((await postTrigger(api.url, 'orphans', created.apiKey)).status).toBe(202);
      await expect.poll(worker.stdout, SOON).toContain('"run ended"');
      // The guard looks for what a command has left, and ends it, half a second after the command.
      await expect
        .poll(async () => (await childrenOf(worker.pid)).filter(({ state }) => state !== 'Z').length, SOON)
        .toBe(1);
      const zombies = (await childrenOf(worker.pid)).filter(({ state }) => state === 'Z');
      expect(await stop(worker)).toBe(0);
      return zombies.length;
    };
    expect(await zombiesAfterRun()).toBe(0);
    const node = image.entrypoint.slice(image.entrypoint.indexOf(NODE));
    expect(await zombiesAfterRun(node)).toBeGreaterThan(0);
    expect(await stop(api)).toBe(0);
  });

  test('a worker for agents lets an agent work on its volume, as its user, and pushes what passed the check', async () => {
    const agents = imageOf('agents');
    const volume = join(folder, 'volume');
    await mkdir(volume);
    const repository = createRepository(join(folder, 'shop'), { 'code.txt': 'broken\n' });
    execFileSync('chown', ['-R', WORKER, repository.bare]);
    const model = await startScriptedModel(['(echo fixed; pwd) > code.txt']);
    const secret = 'canary-of-the-worker';
    const worker = await startContainer(agents, {
      env: { ...env, OPS_PORT: `${await freePort()}`, CANARY: secret },
      volumes: { '/var/lib/orc': volume, [repository.bare]: repository.bare },
    });
    await expect.poll(worker.stdout, SOON).toContain('worker takes runs');
    const check = 'id -u; touch /app/file /etc/file; env; grep -q fixed code.txt';
    const { apiKey } = JSON.parse(
      await orc(
        ...['automations', 'create', 'fix', '--json', '--agent', 'opencode acp', '--attempts', '1'],
        ...['--repo', repository.url, '--prompt', 'Fix it.', '--check', check],
        ...['--push', 'orc/{runId}', '--env', `OPENCODE_CONFIG_CONTENT=${openCodeConfiguration(model)}`],
      ),
    );
    const api = await startApi();
    const { body } = await postTrigger(api.url, 'fix', apiKey);
    await expect.poll(worker.stdout, { timeout: 120_000, interval: 100 }).toContain('"run ended"');
    const runId = String(body['runId']);
    expect(JSON.parse(await orc('runs', 'show', runId, '--json')).outcome).toMatchObject({
      ...{ status: 'succeeded', reason: 'check_passed', agent: { branch: `orc/${runId}` } },
    });
    const [code, place] = git(repository.bare, ...SAFE, 'show', `orc/${runId}:code.txt`).split('\n');
    expect([code, place]).toEqual(['fixed', expect.stringMatching(/^\/var\/lib\/orc\/workspaces\//)]);
    const logs = await orc('runs', 'logs', runId);
    expect(logs).toMatch(/1001\n.*Read-only file system.*Read-only file system/s);
    expect(logs).toContain('ORC_WORKSPACE=/var/lib/orc/');
    expect(logs).not.toContain(secret);
    const { mode, uid } = await stat(volume);
    expect([mode & 0o777, uid]).toEqual([0o700, 1001]);
    expect(await readdir(volume)).toEqual(expect.arrayContaining(['repositories', 'workspaces']));
    expect(await Promise.all([stop(api), stop(worker)])).toEqual([0, 0]);
    expect(await readdir(join(volume, 'workspaces'))).toEqual([]);
  }, 180_000);

  test('the proxy for agents lets them reach the hosts in its file, by TLS, and no others', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const configuration = join(folder, 'proxy');
    const proxyPort = await freePort();
    await mkdir(configuration);
    // Hosts that this machine can connect to, and on whatever port they listen.
    const text = readProjectFile('docs/agents/proxy/tinyproxy.conf')
      .replace(/^Port .*$/m, `Port ${proxyPort}`)
      .replace(/^ConnectPort .*$/m, `ConnectPort ${port}`)
      .replaceAll('/etc/orc-proxy', configuration);
    const hosts = readProjectFile('docs/agents/proxy/allowed-hosts').replace('github.com', 'localhost');
    await writeFile(join(configuration, 'tinyproxy.conf'), text);
    await writeFile(join(configuration, 'allowed-hosts'), hosts);
    const image = imageOf('proxy');
    const proxy = await startContainer(image, {
      entrypoint: [...image.entrypoint.slice(0, -1), join(configuration, 'tinyproxy.conf')],
      volumes: { [configuration]: configuration },
    });
    const connectTo = async (host: string) => {
      const asking = request({ host: '127.0.0.1', port: proxyPort, method: 'CONNECT', path: host });
      const answered = once(asking.end(), 'connect');
      const [{ statusCode }, socket] = await answered;
      socket.destroy();
      return statusCode;
    };
    await expect.poll(() => connectTo(`localhost:${port}`).catch(() => 0), SOON).toBe(200);
    for (const host of ['example.com', '127.0.0.1', '169.254.169.254', 'localhost.example.com']) {
      expect([host, await connectTo(`${host}:${port}`)]).toEqual([host, 403]);
    }
    expect(await connectTo('localhost:22')).toBe(403);
    await stop(proxy);
  });

  test.each([
    ['healthy', 200, 0],
    ['unhealthy', 503, 1],
    ['unhealthy', undefined, 1],
  ])('is %s when the ops listener answers %s', async (_, status, code) => {
    const asked: (string | undefined)[] = [];
    const server = createServer((request, response) => {
      asked.push(request.url);
      response.writeHead(status ?? 500).end();
    });
    let port = await freePort();
    if (status !== undefined) {
      await once(server.listen(0, '127.0.0.1'), 'listening');
      onTestFinished(() => void server.close());
      port = (server.address() as AddressInfo).port;
    }
    expect(await checkHealth(port)).toBe(code);
    expect(asked).toEqual(status === undefined ? [] : ['/ready']);
  });
});

/** The children of a process, zombies included. */
async function childrenOf(pid: number): Promise<{ pid: number; state: string }[]> {
  const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const stats = await Promise.all(
    names.map((name) => readFile(`/proc/${name}/stat`, 'utf8').catch(() => '')),
  );
  return stats.flatMap((stat) => {
    const [state = '', parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(parent) === pid ? [{ pid: Number.parseInt(stat, 10), state }] : [];
  });
}
