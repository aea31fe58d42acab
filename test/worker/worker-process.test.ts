import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { CommandAction } from '../../src/core/actions/command.ts';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { runOrc } from '../support/orc.ts';
import { type OrcProcess, startOrc, startWorkerProcess } from '../support/orc-process.ts';
import { command, openTestStore, script } from '../support/store.ts';
import { answerStatus, startReceiver } from './receiver.ts';
import {
  acceptRuns,
  eventually,
  HARD_PAYLOAD,
  isRunning,
  openFolder,
  readLog,
  sha256,
  waitFor,
} from './workbench.ts';

const store = openTestStore();
const folder = openFolder();

const accept = (slug: string, changes: Partial<AutomationDefinition>, payloads?: string[]) =>
  acceptRuns(store, slug, changes, payloads);

async function startWorker(env: NodeJS.ProcessEnv = {}): Promise<OrcProcess> {
  const worker = await startWorkerProcess({ ...store.env, SHUTDOWN_GRACE_MS: '500', ...env });
  onTestFinished(async () => {
    await worker.stop();
  });
  return worker;
}

const statusOf = async (runId: string) => (await store.runs.get(runId))?.status;
const stdoutOf = async (runId: string) => (await readLog(store, runId)).stdout;

const open = (file: string) => writeFileSync(file, '');

test('a run is queued, then running, then succeeded', async () => {
  const gate = folder('statuses');
  const [runId = ''] = await accept('statuses', { action: waitFor(gate) });
  expect(await store.runs.get(runId)).toMatchObject({ status: 'queued', attempt: 0, maxAttempts: 1 });
  await startWorker();
  await eventually(() => statusOf(runId)).toBe('running');
  expect(await store.runs.get(runId)).toMatchObject({ attempt: 1, startedAt: expect.any(Date) });
  open(gate);
  await eventually(() => statusOf(runId)).toBe('succeeded');
  const run = await store.runs.get(runId);
  expect(run).toMatchObject({
    id: runId,
    automation: 'statuses',
    attempt: 1,
    worker: expect.stringMatching(/\w/),
    outcome: { status: 'succeeded', reason: 'exit_code', exitCode: 0 },
    requestId: 'test-request',
    payloadBytes: 2,
  });
  const { acceptedAt, startedAt, endedAt } = run ?? {};
  const times = [acceptedAt, startedAt, endedAt].map((time) => time?.getTime() ?? Number.NaN);
  expect(times).toEqual([...times].sort((left, right) => left - right));
});

test('on SIGUSR2 a worker drains: it finishes its runs, takes no more, and ends; no run is lost', async () => {
  const gate = folder('drain');
  const accepted = await accept('drained', { action: waitFor(gate) }, ['{}', '{}', '{}']);
  const [first = '', second = '', third = ''] = accepted;
  const worker = await startWorker({ WORKER_CONCURRENCY: '2', OPS_PORT: '0', SHUTDOWN_GRACE_MS: '100' });
  const opsUrl = (await worker.record(({ msg }) => msg === 'ops listens'))['url'];
  for (const runId of [first, second]) await eventually(() => statusOf(runId)).toBe('running');
  // The second signal changes nothing.
  worker.child.kill('SIGUSR2');
  worker.child.kill('SIGUSR2');
  await eventually(async () => (await store.workers.alive()).workersDraining.length).toBe(1);
  expect((await store.workers.alive()).workersAlive).toBe(0);
  const { stdout } = await runOrc(['status'], { env: store.env });
  expect(stdout).toMatch(/^workers +none takes runs, 1 drain; start one: orc worker$/m);
  expect((await fetch(`${opsUrl}/ready`)).status).toBe(503);
  expect(await statusOf(third)).toBe('queued');
  // Another worker is free: the slots of the draining one are no longer those that a run waits for.
  await store.workers.beat('free', 2);
  expect(await (await fetch(`${opsUrl}/metrics`)).text()).toMatch(/^orc_slots_held_seconds 0$/m);
  await store.workers.leave('free');

  const ended = once(worker.child, 'exit');
  open(gate);
  expect(await ended).toEqual([0, null]);
  expect(await Promise.all(accepted.map(statusOf))).toEqual(['succeeded', 'succeeded', 'queued']);
  expect((await store.workers.alive()).workersDraining).toEqual([]);
  await startWorker();
  await eventually(() => statusOf(third)).toBe('succeeded');
});

test('SIGTERM cuts draining short, and an idle worker that drains ends at once', async () => {
  const [runId = ''] = await accept('cut-short', { action: command('sleep', '60') });
  const worker = await startWorker({ SHUTDOWN_GRACE_MS: '100' });
  await eventually(() => statusOf(runId)).toBe('running');
  worker.child.kill('SIGUSR2');
  await worker.record(({ msg }) => String(msg).startsWith('draining'));
  expect(await worker.stop()).toBe(0);
  expect(await statusOf(runId)).toBe('queued');
  expect(await store.runs.cancel(runId)).toBe('cancelled');
  const idle = await startWorker();
  const ended = once(idle.child, 'exit');
  idle.child.kill('SIGUSR2');
  expect(await ended).toEqual([0, null]);
});

describe('a worker', () => {
  let worker: OrcProcess;
  beforeAll(async () => {
    const variables = { CANARY: 'must not leak', API_TOKEN: 'token', PASSED: 'secret-3' };
    worker = await startWorkerProcess({ ...store.env, ...variables, ORC_VERSION: '9', LOG_LEVEL: 'trace' });
  });
  afterAll(async () => {
    await worker.stop();
  });

  test('a payload passes through the queue byte for byte, and the environment of the worker stays with it', async () => {
    const source = `
    const hash = require('node:crypto').createHash('sha256');
    process.stdin.on('data', (chunk) => hash.update(chunk)).on('end', () =>
      console.log(JSON.stringify({ payload: hash.digest('hex'), env: process.env })));`;
    const action = { ...(script(source) as CommandAction), passEnv: ['API_TOKEN'] };
    const [runId = ''] = await accept('payload', { action }, [HARD_PAYLOAD.toString()]);
    await eventually(() => statusOf(runId)).toBe('succeeded');
    const { payload, env } = JSON.parse(await stdoutOf(runId));
    expect(payload).toBe(sha256(HARD_PAYLOAD));
    const { PATH, HOME } = process.env;
    expect(env).toEqual({
      PATH,
      HOME,
      API_TOKEN: 'token',
      ORC_WORKER: (await store.runs.get(runId))?.worker,
      ORC_RUN_ID: runId,
      ORC_AUTOMATION: 'payload',
      ORC_ATTEMPT: '1',
      ORC_PAYLOAD_FILE: expect.any(String),
      ORC_RESULT_FILE: expect.any(String),
      ORC_ARTIFACTS_DIR: expect.any(String),
      ORC_ACCEPTED_AT: (await store.runs.get(runId))?.acceptedAt.toISOString(),
    });
  });

  test('no secret of the worker, of its payloads or of its automations is in its log', async () => {
    const action = {
      ...(command('true') as CommandAction),
      env: { STORED: 'secret-1' },
      passEnv: ['PASSED'],
    };
    const [runId = ''] = await accept('log', { action }, ['{"token":"secret-2"}']);
    await worker.record(({ msg, runId: id }) => msg === 'run ended' && id === runId);
    expect(worker.lines.join('\n')).not.toContain('secret-');
  });

  test('a run whose command fails is failed, and says how', async () => {
    const [runId = ''] = await accept('fails', { action: command('sh', '-c', 'echo no >&2; exit 3') });
    await eventually(() => statusOf(runId)).toBe('failed');
    expect(await store.runs.get(runId)).toMatchObject({
      attempt: 1,
      endedAt: expect.any(Date),
      outcome: { reason: 'exit_code', exitCode: 3, message: 'The command exited with code 3.' },
    });
    expect((await readLog(store, runId)).stderr).toBe('no\n');
  });

  test('a run that takes too long is timed out, and that is its final status', async () => {
    const [runId = ''] = await accept('slow', { action: command('sleep', '1000'), timeoutMs: 300 });
    await eventually(() => statusOf(runId)).toBe('timed_out');
    expect((await store.runs.get(runId))?.outcome).toMatchObject({ reason: 'timeout', signal: 'SIGTERM' });
  });

  test('a run that fails twice and has three attempts is retried until it succeeds', async () => {
    const file = folder('counter');
    const source = 'echo x >>"$1"; echo "attempt $ORC_ATTEMPT"; [ "$(wc -l <"$1")" -eq 3 ]';
    const [runId = ''] = await accept('retried', {
      action: command('sh', '-c', source, 'sh', file),
      attempts: 3,
    });
    await eventually(() => statusOf(runId)).toBe('retrying');
    expect((await store.runs.get(runId))?.outcome).toMatchObject({ status: 'failed', exitCode: 1 });
    expect((await store.runs.get(runId))?.endedAt).toBeUndefined();
    await eventually(() => statusOf(runId)).toBe('succeeded');
    expect(await store.runs.get(runId)).toMatchObject({
      attempt: 3,
      maxAttempts: 3,
      outcome: { exitCode: 0 },
    });
    expect(readFileSync(file, 'utf8')).toBe('x\nx\nx\n');
    const { entries } = await readLog(store, runId);
    const printed = entries.filter(({ source }) => source === 'stdout');
    expect(printed.map(({ attempt, data }) => [attempt, String(data)])).toEqual([
      [1, 'attempt 1\n'],
      [2, 'attempt 2\n'],
      [3, 'attempt 3\n'],
    ]);
  });

  test('a run whose attempts all fail is failed after the last', async () => {
    const file = folder('exhausted');
    const action = command('sh', '-c', 'echo x >>"$1"; exit 5', 'sh', file);
    const [runId = ''] = await accept('exhausted', { action, attempts: 2 });
    await eventually(() => statusOf(runId)).toBe('failed');
    expect(await store.runs.get(runId)).toMatchObject({ attempt: 2, outcome: { exitCode: 5 } });
    expect(readFileSync(file, 'utf8')).toBe('x\nx\n');
  });

  test('a delivery is tried again after 503, with the same webhook-id', async () => {
    const receiver = await startReceiver((response, _, count) =>
      answerStatus(count === 1 ? 503 : 204)(response),
    );
    const [runId = ''] = await accept('delivery', {
      action: { type: 'http', url: receiver.url },
      attempts: 5,
    });
    await eventually(() => statusOf(runId)).toBe('succeeded');
    expect(receiver.requests.map(({ headers }) => headers['webhook-id'])).toEqual([runId, runId]);
    expect((await store.runs.get(runId))?.outcome).toMatchObject({ httpStatus: 204 });
  });

  test('a delivery is not tried again after 404, however many attempts there are', async () => {
    const receiver = await startReceiver(answerStatus(404));
    const [runId = ''] = await accept('refused', {
      action: { type: 'http', url: receiver.url },
      attempts: 5,
    });
    await eventually(() => statusOf(runId)).toBe('failed');
    expect(await store.runs.get(runId)).toMatchObject({ attempt: 1, outcome: { httpStatus: 404 } });
    expect(receiver.requests).toHaveLength(1);
  });
});

test('RUN_TIMEOUT_MS limits the runs of automations without a limit of their own', async () => {
  const [runId = ''] = await accept('slow-by-default', { action: command('sleep', '1000') });
  await startWorker({ RUN_TIMEOUT_MS: '200' });
  await eventually(() => statusOf(runId)).toBe('timed_out');
});

test('a run that waits while its automation is disabled is cancelled, whatever attempts are left', async () => {
  const file = folder('cancelled');
  const [runId = ''] = await accept('cancelled', { action: command('touch', file), attempts: 3 });
  await store.automations.setEnabled('cancelled', false);
  await startWorker();
  await eventually(() => statusOf(runId)).toBe('cancelled');
  expect((await store.runs.get(runId))?.outcome?.reason).toBe('automation_disabled');
  expect(() => readFileSync(file)).toThrow();
});

test('WORKER_CONCURRENCY is how many runs execute at the same time', async () => {
  const file = folder('one-by-one');
  const action = command('sh', '-c', 'echo start >>"$1"; sleep 0.1; echo end >>"$1"', 'sh', file);
  const oneByOne = await accept('one-by-one', { action }, ['{}', '{}', '{}']);
  const one = await startWorker({ WORKER_CONCURRENCY: '1' });
  for (const runId of oneByOne) await eventually(() => statusOf(runId)).toBe('succeeded');
  expect(readFileSync(file, 'utf8')).toBe('start\nend\n'.repeat(3));
  await one.stop();

  const gate = folder('together');
  const together = await accept('together', { action: waitFor(gate) }, ['{}', '{}', '{}']);
  await startWorker({ WORKER_CONCURRENCY: '3' });
  for (const runId of together) await eventually(() => statusOf(runId)).toBe('running');
  open(gate);
  for (const runId of together) await eventually(() => statusOf(runId)).toBe('succeeded');
});

test('SIGTERM lets a run in progress finish and takes no other', async () => {
  const gate = folder('finishes');
  const [first = '', second = ''] = await accept('finishes', { action: waitFor(gate) }, ['{}', '{}']);
  const worker = await startWorker({ WORKER_CONCURRENCY: '1', SHUTDOWN_GRACE_MS: '20000' });
  await eventually(() => stdoutOf(first)).toMatch(/^\d+\n$/);
  const exited = worker.stop();
  await worker.record(({ msg }) => msg === 'stopping');
  // npm passes on what `timeout`, systemd or a terminal has sent to every process already.
  worker.child.kill('SIGTERM');
  open(gate);
  expect(await exited).toBe(0);
  expect(await store.runs.get(first)).toMatchObject({ status: 'succeeded', attempt: 1 });
  expect(await store.runs.get(second)).toMatchObject({ status: 'queued', attempt: 0 });
  await startWorker();
  await eventually(() => statusOf(second)).toBe('succeeded');
});

test('who orders it to stop once more a while later does not wait for its runs', async () => {
  const gate = folder('ordered-twice');
  const [runId = ''] = await accept('ordered-twice', { action: waitFor(gate) });
  const worker = await startWorker({ SHUTDOWN_GRACE_MS: '600000' });
  await eventually(() => stdoutOf(runId)).toMatch(/^\d+\n$/);
  const exited = worker.stop();
  await eventually(() => {
    worker.child.kill('SIGTERM');
    return worker.child.exitCode;
  }).toBe(1);
  expect(await exited).toBe(1);
  expect((await worker.record(({ level }) => level === 'error')).msg).toContain('a second signal, SIGTERM');
});

test('a run that outlasts SHUTDOWN_GRACE_MS is returned to the queue and executed by another worker', async () => {
  const gate = folder('returned');
  const [runId = ''] = await accept('returned', { action: waitFor(gate) });
  const first = await startWorker({ SHUTDOWN_GRACE_MS: '300' });
  await eventually(() => stdoutOf(runId)).toMatch(/^\d+\n$/);
  const pid = Number(await stdoutOf(runId));
  const firstWorker = (await store.runs.get(runId))?.worker;
  expect(await first.stop()).toBe(0);
  expect(isRunning(pid)).toBe(false);
  expect(await statusOf(runId)).toBe('queued');

  open(gate);
  await startWorker();
  await eventually(() => statusOf(runId)).toBe('succeeded');
  expect((await store.runs.get(runId))?.worker).not.toBe(firstWorker);
  expect(await stdoutOf(runId)).toMatch(/^\d+\n\d+\ndone\n$/);
  expect((await readLog(store, runId)).notes).toContain('Attempt 1 was interrupted: shutting down.');
});

test('a run that must not be repeated fails when its worker shuts down, and no other executes it', async () => {
  const gate = folder('not-repeated');
  const [runId = ''] = await accept('not-repeated', {
    action: waitFor(gate),
    onWorkerLoss: 'fail',
    attempts: 3,
  });
  const first = await startWorker({ SHUTDOWN_GRACE_MS: '300' });
  await eventually(() => stdoutOf(runId)).toMatch(/^\d+\n$/);
  expect(await first.stop()).toBe(0);
  expect(await store.runs.get(runId)).toMatchObject({ status: 'failed', outcome: { reason: 'worker_lost' } });
  expect(await stdoutOf(runId)).toMatch(/^\d+\n$/);
});

test('a worker without Redis says so once, and SIGTERM ends it all the same', async () => {
  const unused = createServer().listen(0, '127.0.0.1');
  await once(unused, 'listening');
  const { port } = unused.address() as AddressInfo;
  unused.close();
  const worker = startOrc(['worker'], {
    env: { REDIS_URL: `redis://:secret-1@127.0.0.1:${port}`, SHUTDOWN_GRACE_MS: '100' },
  });
  await worker.record(({ msg }) => msg.includes('no runs are taken'));
  expect(await worker.stop()).toBe(0);
  expect(worker.lines.filter((line) => line.includes('no runs are taken'))).toHaveLength(1);
  expect(worker.lines.join('\n')).not.toContain('secret-1');
});

test('a command that prints 500 MB costs the worker little memory, and does not hold up another run', async () => {
  const source = 'head -c 500000000 /dev/zero; echo end';
  const [flood = ''] = await accept('flood', { action: command('sh', '-c', source) }, [
    HARD_PAYLOAD.toString(),
  ]);
  const worker = await startWorker();
  await eventually(() => statusOf(flood)).toBe('running');
  const [other = ''] = await accept('beside', { action: command('echo', 'hello') });
  await eventually(() => statusOf(other)).toBe('succeeded');
  await eventually(() => statusOf(flood)).toBe('succeeded');
  const { entries } = await readLog(store, flood);
  expect(entries.reduce((sum, { data }) => sum + data.length, 0)).toBeLessThan(1.2 * 1024 * 1024);
  const printed = entries.filter(({ source: from }) => from === 'stdout').at(-1);
  expect((printed?.offset ?? 0) + (printed?.data.length ?? 0)).toBeGreaterThan(500_000_000);
  expect(printed?.data.subarray(-4).toString()).toBe('end\n');
  if (process.platform !== 'linux') return;
  // The most memory it ever had; without a run it has some 100 MB.
  const [, peakKb] =
    /^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${worker.child.pid}/status`, 'utf8')) ?? [];
  expect(Number(peakKb)).toBeLessThan(400 * 1024);
});
