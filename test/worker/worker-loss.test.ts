import { randomUUID } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { createLogger } from '../../src/logger.ts';
import type { Store } from '../../src/store/store.ts';
import { startGuard } from '../../src/worker/guard/guard.ts';
import { scriptedAgent } from '../support/agents.ts';
import { listProcesses } from '../support/machine.ts';
import { type OrcProcess, startTimedWorker, startWorkerProcess } from '../support/orc-process.ts';
import { openPrivateRedis } from '../support/private-redis.ts';
import { command, openStoreAt, openTestStore, script } from '../support/store.ts';
import { startReceiver } from './receiver.ts';
import {
  acceptRuns,
  endProcess,
  eventually,
  exists,
  isRunning,
  openFolder,
  readLog,
  waitFor,
} from './workbench.ts';
import { createRepository } from './workspace/repositories.ts';

const privateRedis = await openPrivateRedis();
const store = openTestStore();
const folder = openFolder();

/** Short enough to be waited for. A guard ends the commands of a frozen worker 3 s after the lease. */
const TIMING = { lockMs: 5500, stalledCheckMs: 300, renewMs: 300, leaseMs: 1000 };

/** "Within a few seconds", in milliseconds. */
const GONE_WITHIN_MS = 5000;

async function stopAfterTest(starting: Promise<OrcProcess>): Promise<OrcProcess> {
  const worker = await starting;
  onTestFinished(async () => {
    worker.child.kill('SIGCONT');
    await worker.stop();
  });
  return worker;
}
const startWorker = (env = {}) =>
  stopAfterTest(startWorkerProcess({ ...store.env, SHUTDOWN_GRACE_MS: '300', ...env }));
const startShortLivedLocks = (env: NodeJS.ProcessEnv = store.env) =>
  stopAfterTest(startTimedWorker({ SHUTDOWN_GRACE_MS: '300', ...env }, TIMING));

const accept = async (slug: string, changes: Partial<AutomationDefinition>, where: Store = store) =>
  (await acceptRuns(where, slug, changes))[0] ?? '';
const statusOf = async (runId: string, where: Store = store) => (await where.runs.get(runId))?.status;

/**
 * A command that starts processes of every kind: in its group, ignoring TERM, in a session of its own, starting others
 * all the time, and an orphan in a session whose leader is gone. It prints their ids, and then goes on or exits.
 */
function spread(ending: string) {
  return script(`
    const { spawn } = require('node:child_process');
    const start = (detached, source, output = 'ignore') =>
      spawn('sh', ['-c', source], { detached, stdio: ['ignore', output, 'ignore'] });
    const pids = [
      process.pid,
      start(false, 'exec sleep 1000').pid,
      start(false, 'trap "" TERM; sleep 1000; sleep 1000').pid,
      start(true, 'trap "" TERM INT HUP; sleep 1000; sleep 1000').pid,
      start(true, 'while :; do sleep 0.01; done').pid,
    ];
    start(true, 'trap "" TERM HUP; sleep 1000 & echo $!', 'pipe').stdout.once('data', (orphan) => {
      console.log(JSON.stringify([...pids, Number(orphan)]));
      ${ending}
    });`);
}
const STAYS = 'setInterval(() => {}, 1000);';
const EXITS = 'process.exit(0);';

/** The ids that a command printed; whatever is left of them after the test is ended. */
async function printedPids(runId: string, where: Store = store): Promise<number[]> {
  await eventually(async () => (await readLog(where, runId)).stdout).toMatch(/\n$/);
  const pids = JSON.parse((await readLog(where, runId)).stdout) as number[];
  onTestFinished(() => {
    for (const pid of pids) endProcess(pid);
  });
  expect(pids.every((pid) => pid > 1)).toBe(true);
  return pids;
}

const guardsOf = (workerPid: number | undefined) =>
  listProcesses()
    .filter(({ parent, args }) => parent === workerPid && args.includes('guard-process'))
    .map(({ pid }) => pid);

async function guardOf(worker: OrcProcess): Promise<number> {
  await eventually(() => guardsOf(worker.child.pid)).toHaveLength(1);
  return guardsOf(worker.child.pid)[0] ?? 0;
}

/** Whether a process has a handler for a signal. */
function catches(pid: number, signal: number): boolean {
  const mask = /^SigCgt:\s+([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return ((BigInt(`0x${mask}`) >> BigInt(signal - 1)) & 1n) === 1n;
}

const expectGone = async (pids: number[]) =>
  expect.poll(() => pids.filter(isRunning), { timeout: GONE_WITHIN_MS, interval: 10 }).toEqual([]);

test('kill -9 of a worker ends everything that its commands started, wherever it went, and the guard', async () => {
  const runId = await accept('spread', { action: spread(STAYS) });
  const worker = await startWorker();
  const pids = await printedPids(runId);
  const guard = await guardOf(worker);
  expect(pids.filter(isRunning)).toEqual(pids);
  await worker.stop('SIGKILL');
  await expectGone([...pids, guard]);
});

test('a signal to all processes of the worker does not end the guard before the commands', async () => {
  const runId = await accept('signalled', { action: spread(STAYS) });
  const worker = await startWorker();
  const pids = await printedPids(runId);
  const guard = await guardOf(worker);
  // In its first moments it is as mortal as any process, and would be replaced if the worker lived on.
  await eventually(() => catches(guard, constants.signals.SIGTERM)).toBe(true);
  await eventually(() => catches(guard, constants.signals.SIGINT)).toBe(true);
  process.kill(guard, 'SIGTERM');
  process.kill(guard, 'SIGINT');
  await worker.stop('SIGKILL');
  await expectGone([...pids, guard]);
});

test('a guard that is ready withstands signals to all processes around it', async () => {
  // An id of its own: at its end a guard kills all processes with its worker's mark, other tests' included.
  const guard = startGuard(randomUUID(), createLogger('silent', 'worker'));
  onTestFinished(() => guard.close());
  await guard.ready;
  const [pid = 0] = guardsOf(process.pid);
  const { SIGTERM, SIGINT, SIGHUP } = constants.signals;
  expect([SIGTERM, SIGINT, SIGHUP].map((signal) => catches(pid, signal))).toEqual([true, true, true]);
});

test('a guard that is killed is replaced, and the new one knows what the worker executes', async () => {
  const runId = await accept('replaced', { action: spread(STAYS) });
  const worker = await startWorker();
  const pids = await printedPids(runId);
  const first = await guardOf(worker);
  process.kill(first, 'SIGKILL');
  await worker.record(({ msg }) => msg.includes('the guard has ended'));
  await eventually(() => guardsOf(worker.child.pid).filter((pid) => pid !== first)).toHaveLength(1);
  expect(exists(first)).toBe(false);
  const second = await guardOf(worker);
  await worker.stop('SIGKILL');
  await expectGone([...pids, second]);
});

test('what left the group of a command that ends by itself is ended as well', async () => {
  const runId = await accept('left', { action: spread(EXITS) });
  await startWorker();
  const pids = await printedPids(runId);
  await eventually(() => statusOf(runId)).toBe('succeeded');
  await expectGone(pids);
});

test('a worker that shuts down leaves no process and no zombie', async () => {
  const gate = folder('shutdown');
  const ended = await accept('ended', { action: command('true') });
  const runId = await accept('shut-down', { action: spread(STAYS), onWorkerLoss: 'fail' });
  const finished = await accept('finishes', { action: waitFor(gate) });
  const worker = await startWorker({ SHUTDOWN_GRACE_MS: '1000' });
  const pids = await printedPids(runId);
  const guard = await guardOf(worker);
  await eventually(() => statusOf(ended)).toBe('succeeded');
  const exited = worker.stop();
  writeFileSync(gate, '');
  expect(await exited).toBe(0);
  expect(pids.filter(isRunning)).toEqual([]);
  // The worker's own children: the ends of the others are for whoever took them over to notice.
  const [leader = 0] = pids;
  expect([leader, guard].filter(exists)).toEqual([]);
  expect([await statusOf(runId), await statusOf(finished)]).toEqual(['failed', 'succeeded']);
});

/** Appends what it finds of an earlier attempt, `alone` or `not alone`, and never ends the first time. */
const findOthers = (file: string) =>
  command(
    'sh',
    '-c',
    `case "$([ -e "$1.pid" ] && cut -d' ' -f3 "/proc/$(cat "$1.pid")/stat" 2>/dev/null)" in
      ''|Z) echo alone ;;
      *) echo not alone ;;
    esac >>"$1"
    [ -e "$1.pid" ] && exit
    echo $$ >"$1.pid"; trap "" TERM; echo started
    while :; do sleep 0.1; done`,
    'sh',
    file,
  );

test('commands of a frozen worker end before another worker executes their runs, and thawed it reports nothing', async () => {
  const file = folder('frozen');
  const rerun = await accept('rerun', { action: findOthers(file) });
  const frozen = await startShortLivedLocks();
  await eventually(async () => (await readLog(store, rerun)).stdout).toBe('started\n');
  const fail = await accept('fail', { action: spread(STAYS), onWorkerLoss: 'fail' });
  const pids = await printedPids(fail);
  const guard = await guardOf(frozen);
  frozen.child.kill('SIGSTOP');
  await startShortLivedLocks();
  await eventually(() => statusOf(rerun)).toBe('succeeded');
  expect(readFileSync(file, 'utf8')).toBe('alone\nalone\n');
  await eventually(() => statusOf(fail)).toBe('failed');
  expect((await store.runs.get(fail))?.outcome?.reason).toBe('worker_lost');
  expect(pids.filter(isRunning)).toEqual([]);

  const ended = await Promise.all([store.runs.get(rerun), store.runs.get(fail)]);
  frozen.child.kill('SIGCONT');
  for (const id of [rerun, fail]) {
    const { reason } = await frozen.record(({ msg, runId }) => msg === 'run interrupted' && runId === id);
    expect(reason).toBe('lock lost');
  }
  expect(frozen.lines.filter((line) => line.includes('run ended'))).toEqual([]);
  expect(await Promise.all([store.runs.get(rerun), store.runs.get(fail)])).toEqual(ended);
  // It takes runs again, with the same guard.
  expect(await guardOf(frozen)).toBe(guard);
});

test('git of a frozen worker ends before another worker executes its run, which then pushes', async () => {
  const repository = createRepository(folder('pushes'));
  const hook = `${repository.bare}/hooks/pre-receive`;
  const pidFile = folder('pushes.pid');
  mkdirSync(`${repository.bare}/hooks`, { recursive: true });
  // Only the first push waits.
  writeFileSync(hook, `#!/bin/sh\n[ -e '${pidFile}' ] && exit 0\necho $$ >'${pidFile}'\nexec sleep 1000\n`);
  chmodSync(hook, 0o755);
  const action = scriptedAgent([[{ write: { file: 'fix.txt', text: 'fixed' } }]], {
    ...{ repo: repository.url, check: 'true', push: 'orc/{runId}' },
  });
  const id = await accept('pushes', { action });
  const env = { ...store.env, WORKSPACE_DIR: folder('pushes-cache') };
  const frozen = await startShortLivedLocks(env);
  await eventually(() => (existsSync(pidFile) ? readFileSync(pidFile, 'utf8') : '')).toMatch(/\d+\n/);
  const pid = Number(readFileSync(pidFile, 'utf8'));
  frozen.child.kill('SIGSTOP');
  const second = await startShortLivedLocks(env);
  await second.record(({ msg, runId }) => msg === 'run started' && runId === id);
  expect(isRunning(pid)).toBe(false);
  await eventually(() => statusOf(id)).toBe('succeeded');
  expect((await store.runs.get(id))?.outcome?.agent?.branch).toBe(`orc/${id}`);
});

test('a worker thawed after its commands were ended, but before its locks end, reports nothing either', async () => {
  const runId = await accept('thawed', { action: spread(STAYS), onWorkerLoss: 'fail', attempts: 3 });
  const worker = await startShortLivedLocks();
  const pids = await printedPids(runId);
  worker.child.kill('SIGSTOP');
  await eventually(() => pids.filter(isRunning)).toEqual([]);
  worker.child.kill('SIGCONT');
  const { reason } = await worker.record(({ msg, runId: id }) => msg === 'run interrupted' && id === runId);
  expect(reason).toBe('lock lost');
  await eventually(() => statusOf(runId)).toBe('failed');
  expect((await store.runs.get(runId))?.outcome?.reason).toBe('worker_lost');
});

test('a worker that cannot reach Redis ends its attempts before their locks end', async () => {
  await privateRedis.start();
  const cutOff = openStoreAt(privateRedis.url, 'patient');
  const env = {
    REDIS_URL: privateRedis.url,
    REDIS_PREFIX: cutOff.keys.queuePrefix.slice(1, -1),
  };
  let deliveries = 0;
  let aborted = 0;
  const receiver = await startReceiver((response) => {
    deliveries += 1;
    response.on('close', () => {
      aborted += 1;
    });
    if (deliveries > 1) response.writeHead(204).end();
  });
  const fail = await accept('fail', { action: spread(STAYS), onWorkerLoss: 'fail' }, cutOff);
  const delivery = await accept('delivery', { action: { type: 'http', url: receiver.url } }, cutOff);
  const worker = await startShortLivedLocks(env);
  const pids = await printedPids(fail, cutOff);
  await eventually(() => deliveries).toBe(1);
  // Longer than a lease: as long as Redis answers, it moves on.
  await sleep(TIMING.leaseMs * 1.5);
  expect(pids.filter(isRunning)).toEqual(pids);

  const frozenAt = Date.now();
  privateRedis.freeze();
  await eventually(() => pids.filter(isRunning)).toEqual([]);
  await eventually(() => aborted).toBe(1);
  expect(Date.now() - frozenAt).toBeLessThan(TIMING.lockMs - TIMING.renewMs);
  for (const id of [fail, delivery]) {
    await worker.record(
      ({ msg, runId, reason }) => msg === 'run interrupted' && runId === id && reason === 'lock lost',
    );
  }
  privateRedis.thaw();
  await eventually(() => statusOf(delivery, cutOff)).toBe('succeeded');
  await eventually(() => statusOf(fail, cutOff)).toBe('failed');
  expect((await cutOff.runs.get(fail))?.outcome?.reason).toBe('worker_lost');
  await eventually(() => worker.lines.filter((line) => line.includes('run ended'))).toHaveLength(2);
});
