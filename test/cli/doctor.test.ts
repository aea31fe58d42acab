import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect as connectSocket, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue } from 'bullmq';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { Finding } from '../../src/ops/findings/finding.ts';
import type { Store } from '../../src/store/store.ts';
import { scriptedAgent } from '../support/agents.ts';
import { runOrc } from '../support/orc.ts';
import { type OrcProcess, runOrcProcess, startWorkerProcess } from '../support/orc-process.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { acceptRun, createTriggered, untilStatus } from '../support/runs.ts';
import { connectStore, newPrefix } from '../support/store.ts';
import { startReceiver } from '../worker/receiver.ts';
import { eventually, openFolder, waitFor } from '../worker/workbench.ts';

const folder = openFolder();
const cwd = folder('.');
const redis = await openPrivateRedis();
let store: Store;
let env: NodeJS.ProcessEnv;
let worker: OrcProcess;

beforeAll(async () => {
  await redis.start();
  const prefix = newPrefix();
  store = connectStore(redis.url, 'patient', prefix);
  env = { REDIS_URL: redis.url, REDIS_PREFIX: prefix };
  worker = await startWorkerProcess(env);
});

afterAll(async () => {
  await worker.stop();
  await store.close();
});

const onlyFindings = (found: Finding[]) => found.filter(({ state }) => state !== 'ok');

/** What the doctor finds that is not in order, the exit code first. */
async function findings(changes: NodeJS.ProcessEnv = {}, directory = cwd) {
  const { code, stdout } = await runOrc(['doctor', '--json'], {
    env: { ...env, ...changes },
    cwd: directory,
  });
  return [code, ...onlyFindings(JSON.parse(stdout))];
}

/** The same of a process of its own. */
async function findingsOfProcess(changes: NodeJS.ProcessEnv) {
  const { code, stdout } = await runOrcProcess(['doctor', '--json'], { env: { ...env, ...changes }, cwd });
  return [code, ...onlyFindings(JSON.parse(stdout))];
}

const found = (state: Finding['state'], check: string, message: RegExp, cure: RegExp) => ({
  check,
  state,
  message: expect.stringMatching(message),
  cure: expect.stringMatching(cure),
});

/** Changes a setting of Redis for the time of a test. */
async function configure(name: string, value: string): Promise<void> {
  const [, before = ''] = (await store.redis.config('GET', name)) as string[];
  onTestFinished(async () => {
    await store.redis.config('SET', name, before);
  });
  await store.redis.config('SET', name, value);
}

/** Stands between the doctor and Redis, and changes what Redis says or when. */
async function standBetween(change: (reply: string) => string, delayMs = 0): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connectSocket(redis.url);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => sockets.delete(socket));
    }
    client.pipe(upstream);
    client.on('close', () => upstream.destroy());
    upstream.on('data', async (data) => {
      await sleep(delayMs);
      client.write(change(data.toString('latin1')), 'latin1');
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test('a sound installation passes without a finding', async () => {
  const { code, stdout, stderr } = await runOrc(['doctor'], { env, cwd });
  expect([code, stderr]).toEqual([0, '']);
  for (const line of stdout.trimEnd().split('\n')) expect(line).toMatch(/^ok {7}\S/);
});

test('what cures a finding stands below it, and problems make it fail', async () => {
  await configure('appendonly', 'no');
  const { code, stdout, stderr } = await runOrc(['doctor'], { env, cwd });
  expect([code, stderr]).toEqual([1, 'orc: There is a problem.\n']);
  expect(stdout).toMatch(/^problem {2}aof +off: .*\n +cure: redis-cli config set appendonly yes$/m);
});

test('warnings alone are no failure', async () => {
  await configure('appendfsync', 'everysec');
  expect(await findings()).toEqual([
    0,
    found('warning', 'appendfsync', /up to a second/, /config set appendfsync always/),
  ]);
});

test('a Redis that leaves flushing to the machine is found', async () => {
  await configure('appendfsync', 'no');
  expect(await findings()).toEqual([1, found('problem', 'appendfsync', /^no:/, /appendfsync always/)]);
});

test('a Redis whose latest write to the disk failed is found', async () => {
  const dump = join(redis.dataDir, 'dump.rdb');
  const saved = async () =>
    /rdb_bgsave_in_progress:0[\s\S]*rdb_last_bgsave_status:(\w+)/.exec(
      await store.redis.info('persistence'),
    )?.[1];
  // A file cannot be moved to where a folder is.
  mkdirSync(dump);
  await store.redis.bgsave();
  await eventually(saved).toBe('err');
  expect(await findings()).toEqual([
    1,
    found('problem', 'redis saves', /rdb_last_bgsave_status/, /free disk space/),
  ]);
  rmdirSync(dump);
  await store.redis.bgsave();
  await eventually(saved).toBe('ok');
});

test('a Redis that may drop keys is found', async () => {
  await configure('maxmemory-policy', 'allkeys-lru');
  expect(await findings()).toEqual([
    1,
    found('problem', 'eviction', /^allkeys-lru/, /maxmemory-policy noeviction/),
  ]);
});

test('a Redis whose memory is nearly used up is found', async () => {
  const used = Number(/used_memory:(\d+)/.exec(await store.redis.info('memory'))?.[1]);
  await configure('maxmemory', `${Math.round(used * 1.15)}`);
  expect(await findings()).toEqual([
    0,
    found('warning', 'memory', /8\d|9\d % of maxmemory/, /^redis-cli config set maxmemory \d+mb$/),
  ]);
});

test('that logs, results and artifacts fill their budget is found, with the automations that take most', async () => {
  const used = { chatty: 900_000, quiet: 100_000, ':total': 1_000_000 };
  await store.redis.hset(store.keys.keptBytes, used);
  onTestFinished(async () => {
    await store.redis.del(store.keys.keptBytes);
  });
  expect(await findings({ KEEP_BYTES: '1048576' })).toEqual([
    0,
    found(
      'warning',
      'kept',
      /976\.6 KiB of at most 1\.0 MiB; most by chatty 878\.9 KiB, quiet 97\.7 KiB/,
      /raise KEEP_BYTES.*chatty/,
    ),
  ]);
  expect(await findings({ KEEP_BYTES: '2000000' })).toEqual([0]);
});

test('without KEEP_BYTES, the budget is a quarter of maxmemory', async () => {
  await configure('maxmemory', `${400 * 1_048_576}`);
  const { stdout } = await runOrc(['status', '--json'], { env, cwd });
  expect(JSON.parse(stdout).kept).toMatchObject({ limitBytes: 100 * 1_048_576 });
});

test('a Redis that is full is found, and that it refuses writes', async () => {
  await configure('maxmemory', '1mb');
  expect(await findings()).toEqual([
    1,
    found('problem', 'redis writes', /OOM[^:]*'maxmemory'$/, /maxmemory/),
    found('problem', 'memory', /\d{3,} % of maxmemory/, /maxmemory (?!1mb|2mb)\d+mb$/),
  ]);
});

test('what a full Redis refuses is said by every command, with the cure', async () => {
  await createTriggered(store, 'refused');
  onTestFinished(async () => {
    await store.automations.delete('refused');
  });
  await configure('maxmemory', '1mb');
  const { code, stdout } = await runOrc(['status'], { env, cwd });
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^redis +refuses writes: OOM .*: orc doctor$/m)]);
  expect(JSON.parse((await runOrc(['status', '--json'], { env, cwd })).stdout).redisRefuses).toMatch(/^OOM/);
  const triggered = await runOrc(['trigger', 'refused'], { env, cwd });
  expect(triggered).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(
      /^orc: Redis refused a command: OOM [^@]*'maxmemory'\. The cure: redis-cli config set maxmemory <more>\. See: orc doctor\n$/,
    ),
  });
});

test('a Redis that is a replica is found', async () => {
  onTestFinished(async () => {
    await store.redis.replicaof('NO', 'ONE');
  });
  await store.redis.replicaof('127.0.0.1', 1);
  expect(await findings()).toEqual([
    1,
    found('problem', 'redis writes', /READONLY/, /REDIS_URL to the master/),
  ]);
});

test('a Redis that is not there, wants another password or does not answer is found', async () => {
  const finding = (reason: RegExp) => [1, found('problem', 'redis', reason, /REDIS_URL/)];
  expect(await findings({ REDIS_URL: 'redis://127.0.0.1:1' })).toEqual(finding(/ECONNREFUSED/));
  expect(await findings({ REDIS_URL: '' })).toEqual(finding(/There is no Redis/));
  await configure('requirepass', 's3cret');
  expect(await findings()).toEqual(finding(/NOAUTH/));
  redis.freeze();
  onTestFinished(() => redis.thaw());
  expect(await findings({ REDIS_URL: `unix://:s3cret@${redis.url}` })).toEqual(finding(/cannot be used/));
  redis.thaw();
});

test('with the login that docs/redis.md describes, only what it may not ask for is unknown', async () => {
  const rights = ['~*', 'resetchannels', '+@all', '-@admin', '-@dangerous', '+info'];
  await store.redis.acl('SETUSER', 'careful', 'on', '>s3cret', ...rights);
  expect(await findings({ REDIS_URL: `unix://careful:s3cret@${redis.url}` })).toEqual([
    0,
    found('unknown', 'appendfsync', /may not read/, /config get appendfsync/),
  ]);
});

test('a Redis that is too old is found', async () => {
  const REDIS_URL = await standBetween((reply) =>
    reply.replace(
      /redis_version:([\d.]+)/,
      (all, { length }) => all.slice(0, -length) + '6.0.16'.padEnd(length, '0').slice(0, length),
    ),
  );
  expect(await findings({ REDIS_URL })).toEqual([
    1,
    found('problem', 'redis version', /^6\.0\.\d+ is too old/, /Redis 6\.2/),
  ]);
});

test('a Redis that is far away is found', async () => {
  const REDIS_URL = await standBetween((reply) => reply, 60);
  expect(await findings({ REDIS_URL })).toEqual([
    0,
    found('warning', 'latency', /a round trip takes \d+\.\d ms/, /near Redis/),
  ]);
});

test.each([
  [-5000, 'warning', 'ahead of'],
  [60_000, 'problem', 'behind'],
] as const)('a clock that is %i ms off is found', async (ms, state, direction) => {
  const shift = `const now = Date.now; Date.now = () => now() + ${ms};`;
  const NODE_OPTIONS = `--import data:text/javascript,${encodeURIComponent(shift)}`;
  expect(await findingsOfProcess({ NODE_OPTIONS })).toEqual([
    state === 'problem' ? 1 : 0,
    found(state, 'clock', new RegExp(`Redis is .* ${direction} this machine`), /timedatectl/),
  ]);
});

test('that no worker is alive is found', async () => {
  expect(await findings({ REDIS_PREFIX: newPrefix() })).toEqual([
    1,
    found('problem', 'workers', /none is alive/, /^orc worker$/),
  ]);
});

test('a queue that somebody has paused is found', async () => {
  const queue = new Queue('runs', { connection: store.redis as never, prefix: store.keys.queuePrefix });
  onTestFinished(() => queue.resume());
  await queue.pause();
  expect(await findings()).toEqual([1, found('problem', 'queue', /paused/, /resume it/)]);
});

/** Another installation in the same Redis, on which no worker of the other tests works. */
function openOther(): { other: Store; prefix: string } {
  const prefix = newPrefix();
  const other = connectStore(redis.url, 'patient', prefix);
  onTestFinished(() => other.close());
  return { other, prefix };
}

test('a run that waits although a worker is idle is found, and one that may be the last that fits', async () => {
  const { other, prefix } = openOther();
  const runId = await acceptRun(other, await createTriggered(other, 'waits'));
  await other.redis.hset(`${other.keys.queuePrefix}:runs:${runId}`, 'timestamp', Date.now() - 120_000);
  await other.workers.beat('idle-worker');
  expect(await findings({ REDIS_PREFIX: prefix, MAX_QUEUED_RUNS: '1' })).toEqual([
    1,
    found('problem', 'queue', new RegExp(`^${runId} of waits has waited for 2 min`), /^restart the workers/),
    found('problem', 'capacity', /^1 of at most 1 queued runs/, /another worker/),
  ]);
});

test('a receiver that gets no events is found, with what it answered, and that events were dropped', async () => {
  let status = 500;
  const receiver = await startReceiver((response) => response.writeHead(status).end());
  const url = `${receiver.url}/services/T012345/s3cret`;
  const automation = await createTriggered(store, 'untold', { onEnd: url });
  onTestFinished(async () => {
    await store.automations.delete('untold');
  });
  const cancel = async () => store.runs.cancel(await acceptRun(store, automation));
  await cancel();
  const failing = async () => (await store.events.queues())[0]?.failing;
  await eventually(failing).toMatchObject({ lastError: 'The receiver answered 500.' });
  const shown = `--on-end ${receiver.url}/services/*** of untold has failed for `.replaceAll('*', '\\*');
  expect(await findings()).toEqual([
    0,
    found(
      'warning',
      'events',
      new RegExp(`^${shown}\\d+.*: The receiver answered 500. 1 event waits$`),
      /^mend the receiver.*orc automations set untold --on-end URL$/,
    ),
  ]);
  status = 410;
  await store.redis.zadd(store.keys.eventQueues, 'XX', 1, 'untold:onEnd');
  await cancel();
  // The first event is dropped at once, the second by then or a moment later.
  await eventually(async () => (await store.events.drops()).get('untold')?.count).toBeGreaterThan(0);
  expect(await findings()).toContainEqual(
    found(
      'warning',
      'dropped events',
      /^[12] so far, the last for --on-end of untold .*: The receiver answered 410\.$/,
      /orc automations show untold/,
    ),
  );
});

test('events that no worker sends are found', async () => {
  const { other, prefix } = openOther();
  const automation = await createTriggered(other, 'unsent', { onEnd: 'http://127.0.0.1:1/' });
  await other.runs.cancel(await acceptRun(other, automation));
  await other.redis.zadd(other.keys.eventQueues, Date.now() - 120_000, 'unsent:onEnd');
  expect(await findings({ REDIS_PREFIX: prefix })).toContainEqual(
    found('warning', 'events', /^1 event waits, those of unsent for 2 min .* no worker sends/, /orc worker/),
  );
});

test('a run that waits long for the concurrency of its automation is found, with the run that holds it up', async () => {
  const { other, prefix } = openOther();
  const automation = await createTriggered(other, 'narrow', { concurrency: 1 });
  const holder = await acceptRun(other, automation);
  const runId = await acceptRun(other, automation);
  // As if a worker had taken the first one.
  await other.redis.lrem(`${other.keys.queuePrefix}:runs:wait`, 0, holder);
  await other.redis.hset(`${other.keys.queuePrefix}:runs:${runId}`, 'timestamp', Date.now() - 1_200_000);
  expect(await findings({ REDIS_PREFIX: prefix })).toContainEqual(
    found(
      'warning',
      'queue',
      new RegExp(`^${runId} of narrow has waited for 20 min .* behind ${holder}$`),
      new RegExp(`^orc runs cancel ${holder}, or orc automations set narrow --concurrency 2$`),
    ),
  );
});

test('a run whose worker died, and one that goes on beyond its time limit, are found', async () => {
  const { other, prefix } = openOther();
  const action = waitFor(folder('never'));
  const automation = await createTriggered(other, 'goes-on', { action, timeoutMs: 60_000 });
  const dying = await startWorkerProcess({ ...env, REDIS_PREFIX: prefix });
  const runId = await acceptRun(other, automation);
  await untilStatus(other, runId, 'running');
  const key = `${other.keys.queuePrefix}:runs:${runId}`;
  await other.redis.hset(key, 'processedOn', Date.now() - 180_000);
  expect(await findings({ REDIS_PREFIX: prefix })).toEqual([
    1,
    found(
      'problem',
      'overdue runs',
      new RegExp(`^1, among them ${runId}`),
      new RegExp(`^orc runs cancel ${runId}$`),
    ),
  ]);
  await other.redis.hset(key, 'processedOn', Date.now());
  await dying.stop('SIGKILL');
  // What half a minute would do.
  await other.redis.del(`${key}:lock`);
  await other.redis.del(other.keys.workers);
  expect(await findings({ REDIS_PREFIX: prefix })).toEqual([
    1,
    found('problem', 'workers', /none is alive/, /^orc worker$/),
    found('problem', 'abandoned runs', new RegExp(`among them ${runId}`), /^orc worker$/),
  ]);
  const own = { env: { REDIS_URL: redis.url, REDIS_PREFIX: prefix } };
  const { stdout } = await runOrc(['status'], own);
  expect(stdout).toMatch(
    new RegExp(
      `^abandoned +1, among them ${runId}: the worker died or lost Redis; start a worker: orc worker$`,
      'm',
    ),
  );
  expect(stdout).toMatch(new RegExp(`^${runId} .* \\S+ \\(gone\\)$`, 'm'));
  const cancelled = await runOrc(['runs', 'cancel', runId], own);
  expect([cancelled.code, cancelled.stderr]).toEqual([
    1,
    expect.stringContaining('No worker is alive; the next one ends it. Start one: orc worker'),
  ]);
});

test.each<[NodeJS.ProcessEnv, ReturnType<typeof found>]>([
  [
    { PUBLIC_URL: 'orc.example.com' },
    found('problem', 'environment', /^PUBLIC_URL is invalid/, /^set PUBLIC_URL/),
  ],
  [
    { PUBLIC_URL: 'http://orc.example.com', TRUST_PROXY: '10.0.0.1' },
    found('warning', 'PUBLIC_URL', /unencrypted/, /^PUBLIC_URL=https:\/\/orc\.example\.com/),
  ],
  [{ HOST: '0.0.0.0' }, found('warning', 'PUBLIC_URL', /^not set/, /^PUBLIC_URL=https/)],
  [{ PUBLIC_URL: 'https://orc.example.com' }, found('warning', 'TRUST_PROXY', /^not set/, /^TRUST_PROXY=/)],
  [
    { TRUST_PROXY: '10.0.0.1, 0.0.0.0/0', PUBLIC_URL: 'https://a.example' },
    found('problem', 'TRUST_PROXY', /^0\.0\.0\.0\/0 lets callers/, /^TRUST_PROXY=/),
  ],
  [
    { TRUST_PROXY: '::/0', PUBLIC_URL: 'https://a.example' },
    found('problem', 'TRUST_PROXY', /^::\/0 lets callers/, /^TRUST_PROXY=/),
  ],
  [
    { TRUST_PROXY: '10.0.0.0/99', PUBLIC_URL: 'https://a.example' },
    found('problem', 'TRUST_PROXY', /not an address or network: 10/, /^TRUST_PROXY=/),
  ],
])('the environment %j is found', async (changes, finding) => {
  expect(await findings(changes)).toEqual([finding.state === 'problem' ? 1 : 0, finding]);
});

test('a proxy that is trusted alone, and callers on this machine only, are in order', async () => {
  const sound = [
    { PUBLIC_URL: 'https://orc.example.com', TRUST_PROXY: '10.0.0.0/8, ::1', HOST: '0.0.0.0' },
    { PUBLIC_URL: 'http://localhost:3000', HOST: '0.0.0.0' },
    { PUBLIC_URL: 'http://[::1]:3000' },
  ];
  for (const changes of sound) expect(await findings(changes)).toEqual([0]);
});

test('a folder that orc local cannot write to is found', async () => {
  mkdirSync(folder('unwritable'));
  writeFileSync(folder('unwritable/.orc'), 'a file is where the folder belongs');
  const [code, ...others] = await findings({ REDIS_URL: '' }, folder('unwritable'));
  expect(code).toBe(1);
  expect(others).toContainEqual(
    found('problem', 'disk', /\.orc is not a folder\. /, /a folder that you may write to/),
  );
});

test('a worker without git is a problem once an automation needs a checkout, and its runs say so', async () => {
  const prefix = newPrefix();
  const other = connectStore(redis.url, 'patient', prefix);
  const changes = { REDIS_URL: redis.url, REDIS_PREFIX: prefix, PATH: folder('nothing') };
  const lacking = await startWorkerProcess(changes);
  onTestFinished(async () => {
    await lacking.stop();
    await other.close();
  });
  const git = async () => {
    const { stdout } = await runOrc(['doctor', '--json'], { env: { ...changes, PATH: process.env['PATH'] } });
    return (JSON.parse(stdout) as Finding[]).find(({ check }) => check === 'git');
  };
  await eventually(git).toEqual({
    ...{ check: 'git', state: 'ok' },
    message: expect.stringMatching(/^missing on \S+; no automation needs it$/),
  });
  const action = scriptedAgent([], { repo: 'file:///nowhere.git' });
  const automation = await createTriggered(other, 'fix', { action, attempts: 1 });
  expect(await git()).toEqual(
    found(
      'problem',
      'git',
      /^missing on \S+: runs of automations with --repo, such as fix, fail there$/,
      /^install the package git there, and restart the worker$/,
    ),
  );
  const runId = await acceptRun(other, automation, '{}');
  await untilStatus(other, runId, 'failed');
  expect((await runOrc(['runs', 'show', runId], { env: changes })).stdout).toMatch(
    /^outcome +The repository cannot be checked out: git is not on the PATH of the worker; install the package git\.$/m,
  );
});
