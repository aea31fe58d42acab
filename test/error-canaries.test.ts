import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { findRedisServer } from '../src/local/find-redis-server.ts';
import { freePort } from '../src/local/free-port.ts';
import type { Store } from '../src/store/store.ts';
import { postTrigger } from './support/http.ts';
import { runOrc } from './support/orc.ts';
import { type OrcProcess, startApiProcess, startOrc } from './support/orc-process.ts';
import { openPrivateRedis } from './support/private-redis.ts';
import { connectStore, createAutomation, definition, script } from './support/store.ts';
import { eventually } from './worker/workbench.ts';

const REDIS_PASSWORD = 'redis-canary-0815';
const SENTINEL_PASSWORD = 'sentinel/canary%0815';
const TRACES_TOKEN = 'traces-canary-0815';
const ENV_VALUE = 'env-canary-0815';
const PAYLOAD = 'payload-canary-0815';
const CANARIES = [
  REDIS_PASSWORD,
  SENTINEL_PASSWORD,
  encodeURIComponent(SENTINEL_PASSWORD),
  TRACES_TOKEN,
  ENV_VALUE,
  PAYLOAD,
];
/** Rights that `orc` needs are left out of this login's, one after the other. */
const LOGIN = 'weak';

const redis = await openPrivateRedis();
const server = await findRedisServer({ env: process.env, report: () => undefined });
let admin: Store;

beforeAll(async () => {
  await redis.start();
  admin = connectStore(redis.url, 'patient', 'orc');
});

afterAll(async () => {
  await admin.close();
});

/** All that processes printed, line by line. */
type Printed = string[];

function environmentOf(REDIS_URL: string): NodeJS.ProcessEnv {
  return {
    REDIS_URL,
    OPS_PORT: '0',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
    OTEL_EXPORTER_OTLP_HEADERS: `authorization=${TRACES_TOKEN}`,
    LOG_LEVEL: 'trace',
    SHUTDOWN_GRACE_MS: '100',
  };
}

/** What API, worker and commands print of a Redis, once both processes have logged the error and `doctor` tells of it. */
async function meet(url: string, error: RegExp): Promise<Printed> {
  const env = environmentOf(url);
  const processes = [await startApiProcess(env), startOrc(['worker'], { env })];
  const printed = await runCommands(env);
  expect(printed.join('\n')).toMatch(error);
  for (const each of processes) {
    await eventually(() => each.lines.some((line) => error.test(line) && line.includes('"err"'))).toBe(true);
  }
  return [...printed, ...(await endOf(...processes))];
}

async function runCommands(env: NodeJS.ProcessEnv): Promise<Printed> {
  const commands = [['doctor'], ['automations', 'list'], ['status']].map((args) => runOrc(args, { env }));
  return (await Promise.all(commands)).flatMap(({ stdout, stderr }) => `${stdout}${stderr}`.split('\n'));
}

async function endOf(...processes: OrcProcess[]): Promise<Printed> {
  await Promise.all(processes.map((each) => each.stop()));
  return processes.flatMap(({ lines }) => lines);
}

function withCanary(printed: Printed, ...others: string[]): Printed {
  expect(printed.length).toBeGreaterThan(5);
  return printed.filter((line) => [...CANARIES, ...others].some((canary) => line.includes(canary)));
}

/** A Redis with settings that cannot be made while it runs. */
async function startRedis(lines: string[], ...args: string[]): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'orc-canaries-'));
  const port = await freePort();
  const file = join(folder, 'redis.conf');
  await writeFile(file, [`port ${port}`, `dir ${folder}`, 'save ""', ...lines].join('\n'));
  const child = spawn(server.command, [file, ...args], {
    env: server.env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  let log = '';
  child.stdout.on('data', (data) => {
    log += data;
  });
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await closed;
    await rm(folder, { recursive: true, force: true });
  });
  await eventually(() => log).toMatch(/Ready to accept connections|Sentinel ID is/);
  return port;
}

async function setLogin(...rights: string[]): Promise<string> {
  await admin.redis.acl('SETUSER', LOGIN, 'reset', 'on', `>${REDIS_PASSWORD}`, '~*', '&*', ...rights);
  return `unix://${LOGIN}:${REDIS_PASSWORD}@${redis.url}`;
}

test('a refused login prints no password', async () => {
  await admin.redis.acl('SETUSER', LOGIN, 'reset', 'on', '>another');
  const url = `unix://${LOGIN}:${REDIS_PASSWORD}@${redis.url}`;
  expect(withCanary(await meet(url, /WRONGPASS/))).toEqual([]);
});

test('a server that repeats what it does not understand makes nobody print a password', async () => {
  const port = await startRedis(['rename-command AUTH ""', 'rename-command HELLO ""']);
  const printed = await meet(`redis://:${REDIS_PASSWORD}@127.0.0.1:${port}`, /unknown command/);
  expect(withCanary(printed)).toEqual([]);
});

test('Sentinels that refuse a login make nobody print a password', async () => {
  const port = await startRedis(['requirepass another'], '--sentinel');
  const sentinelPassword = encodeURIComponent(SENTINEL_PASSWORD);
  const url = `redis+sentinel://:${REDIS_PASSWORD}@127.0.0.1:${port}/main?sentinel_password=${sentinelPassword}`;
  expect(withCanary(await meet(url, /WRONGPASS|no Sentinel can be used/))).toEqual([]);
});

const REFUSED = /NOPERM|can't run this command/;

test.each([
  ['@scripting', true],
  ['@transaction', false],
  ['@blocking', true],
  ['@write', true],
])(
  'a login without %s makes nobody print a secret, and doctor names what it lacks',
  async (right, inWorker) => {
    const apiKey = await createAutomation(admin, `needs-${right.slice(1)}`);
    const env = environmentOf(await setLogin('+@all', `-${right}`));
    const api = await startApiProcess(env);
    const worker = startOrc(['worker'], { env });
    for (const body of [`["${PAYLOAD}"]`, `{"canary":"${PAYLOAD}"}`]) {
      await postTrigger(api.url, `needs-${right.slice(1)}`, apiKey, body);
    }
    const printed = await runCommands(env);
    expect(printed.join('\n')).toMatch(
      new RegExp(`problem +redis rights +the login ${LOGIN} lacks .*${right}`),
    );
    expect(printed.join('\n')).toContain(`cure: redis-cli acl setuser ${LOGIN} `);
    const isRefused = () => worker.lines.some((line) => REFUSED.test(line));
    if (inWorker) await eventually(isRefused).toBe(true);
    printed.push(...(await endOf(api, worker)));
    expect(withCanary(printed, apiKey)).toEqual([]);
  },
);

test('a worker whose login may not use scripts pauses, and logs each error once', async () => {
  await admin.redis.config('RESETSTAT');
  const env = { REDIS_URL: await setLogin('+@all', '-@scripting') };
  const worker = startOrc(['worker'], { env });
  await worker.line('queue error');
  // Two commands take seconds, in which it would be refused thousands of times.
  expect((await runOrc(['doctor'], { env })).code).toBe(1);
  expect((await runOrc(['status'], { env })).code).toBe(1);
  const refusals = Number(/errorstat_NOPERM:count=(\d+)/.exec(await admin.redis.info('errorstats'))?.[1]);
  expect(refusals).toBeGreaterThan(1);
  expect(refusals).toBeLessThan(200);
  const messages = worker.lines.flatMap((line) => /"message":"([^"]+)"/.exec(line)?.[1] ?? []);
  expect(messages.toSorted()).toEqual([...new Set(messages)].toSorted());
  expect(await worker.stop()).toBe(0);
});

test('an outage, a full Redis and commands that cannot start make nobody print a secret', async () => {
  const env = environmentOf(await setLogin('+@all'));
  const missing = { type: 'command' as const, argv: ['/nowhere'], env: { SECRET: ENV_VALUE }, passEnv: [] };
  const apiKey = await createAutomation(admin, 'missing', { action: missing });
  const receiver = { type: 'http' as const, url: 'http://127.0.0.1:1/' };
  const created = await admin.automations.create(definition('receiver', { action: receiver }));
  if (created.status !== 'created') throw new Error('It exists');
  const secrets = [apiKey, created.apiKey, String(created.signingSecret)];
  const body = `{"canary":"${PAYLOAD}"}`;
  const api = await startApiProcess(env);
  const worker = startOrc(['worker'], { env });
  await worker.record(({ msg }) => msg === 'worker takes runs');

  for (const [slug, key] of [['missing', apiKey] as const, ['receiver', created.apiKey] as const]) {
    expect((await postTrigger(api.url, slug, key, body)).status).toBe(202);
    await worker.record(({ msg, automation }) => msg === 'run ended' && automation === slug);
  }
  await admin.redis.config('SET', 'maxmemory', '1');
  expect((await postTrigger(api.url, 'missing', apiKey, body)).status).toBe(503);
  const argv = ['automations', 'create', 'new', '--env', `SECRET=${ENV_VALUE}`, '--', 'true'];
  const refused = await runOrc(argv, { env });
  expect(refused.stderr).toContain('OOM');
  const doctor = await runOrc(['doctor'], { env });
  expect(doctor.stdout).toContain('OOM');
  await admin.redis.config('SET', 'maxmemory', '0');
  const slowKey = await createAutomation(admin, 'slow', { action: script('setTimeout(() => {}, 60000)') });
  await eventually(async () => (await postTrigger(api.url, 'slow', slowKey, body)).status).toBe(202);
  await worker.record(({ msg, automation }) => msg === 'run started' && automation === 'slow');

  await redis.kill();
  expect((await postTrigger(api.url, 'missing', apiKey, body)).status).toBe(503);
  await api.line('redis is away');
  await worker.line('redis is away');
  const away = await runOrc(['doctor'], { env });
  expect(away.stdout).toContain('cannot be used');
  const printed = [refused, doctor, away].flatMap(({ stdout, stderr }) => `${stdout}${stderr}`.split('\n'));
  expect(withCanary([...printed, ...(await endOf(api, worker))], ...secrets, slowKey)).toEqual([]);
  await redis.start();
});
