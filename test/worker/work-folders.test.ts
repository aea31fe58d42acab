import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { sweepWorkFolders } from '../../src/worker/work-folders.ts';
import { listProcesses } from '../support/machine.ts';
import { type OrcProcess, startWorkerProcess } from '../support/orc-process.ts';
import { compiled } from '../support/repository.ts';
import { command, openTestStore } from '../support/store.ts';
import { acceptRuns, endProcess, eventually, openFolder, readLog } from './workbench.ts';

const store = openTestStore();
const folder = openFolder();

/** A temporary folder of the test's own. */
function makeTemporaryFolder(name: string): string {
  const path = folder(name);
  mkdirSync(path);
  return path;
}

async function startWorker(TMPDIR: string): Promise<OrcProcess> {
  const worker = await startWorkerProcess({ ...store.env, TMPDIR, SHUTDOWN_GRACE_MS: '300' });
  onTestFinished(async () => {
    await worker.stop('SIGKILL');
  });
  return worker;
}

/** A command that locks its working directory, prints its pid and goes on. */
const LOCKED = command('sh', '-c', 'mkdir a; touch a/file; chmod 500 a; chmod 0 .; echo $$; exec sleep 1000');

/** Starts a worker and a run in it, and resolves when its folder is as the command wants it. */
async function startRun(slug: string, TMPDIR: string): Promise<OrcProcess> {
  const worker = await startWorker(TMPDIR);
  const [runId = ''] = await acceptRuns(store, slug, { action: LOCKED, onWorkerLoss: 'fail' });
  const printed = async () => (await readLog(store, runId)).stdout;
  await eventually(printed).toMatch(/\n$/);
  const pid = Number(await printed());
  onTestFinished(() => endProcess(pid));
  return worker;
}

test('kill -9 of a worker leaves neither the payload nor the working directory of a run', async () => {
  const tmp = makeTemporaryFolder('killed');
  const worker = await startRun('killed', tmp);
  expect(readdirSync(tmp)).not.toEqual([]);
  await worker.stop('SIGKILL');
  await eventually(() => readdirSync(tmp)).toEqual([]);
});

test('a worker that shuts down leaves nothing in the temporary folder', async () => {
  const tmp = makeTemporaryFolder('shut-down');
  const worker = await startRun('shut-down', tmp);
  expect(await worker.stop()).toBe(0);
  await eventually(() => readdirSync(tmp)).toEqual([]);
});

test('what a worker left that was killed with its guard is removed by the next one, and nothing else', async () => {
  const tmp = makeTemporaryFolder('swept');
  const killed = await startRun('swept', tmp);
  const [left = ''] = readdirSync(tmp);
  const [guard] = listProcesses().filter(
    ({ parent, args }) => parent === killed.child.pid && args.includes('guard-process'),
  );
  endProcess(guard?.pid ?? 0);
  await killed.stop('SIGKILL');

  const alive = await startRun('alive', tmp);
  const [kept = ''] = readdirSync(tmp).filter((name) => name !== left);
  const elsewhere = makeTemporaryFolder('elsewhere');
  writeFileSync(join(elsewhere, 'file'), '');
  symlinkSync(elsewhere, join(tmp, 'orc-worker-link'));
  mkdirSync(join(tmp, 'another'));
  writeFileSync(join(tmp, 'another', 'payload.json'), '{}');
  await startWorker(tmp);
  const others = ['another', 'orc-worker-link', kept].toSorted();
  await eventually(() => readdirSync(tmp).toSorted()).toEqual(others);
  // Nobody is told when a worker is done with it.
  await sweepWorkFolders((error) => expect.fail(error.message), tmp);
  expect(readdirSync(tmp).toSorted()).toEqual(others);
  expect(existsSync(join(elsewhere, 'file'))).toBe(true);
  await alive.stop('SIGKILL');
});

/** Runs as a user for whom permissions count, which they do not for root. */
function asOrdinaryUser(source: string) {
  const isRoot = process.getuid?.() === 0;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', source], {
    encoding: 'utf8',
    cwd: '/',
    ...(isRoot && { uid: 65_534, gid: 65_534 }),
  });
  return { stdout, stderr };
}

test('folders that forbid their owner to change them are removed, and what a link in them leads to stays as it is', () => {
  const base = makeTemporaryFolder('ordinary');
  chmodSync(folder('.'), 0o755);
  chmodSync(base, 0o777);
  const source = `
    import { chmodSync, existsSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
    import { removeFolder } from '${compiled('worker/remove-folder.js')}';
    const at = (path) => '${base}/' + path;
    for (const path of ['run', 'run/deep', 'run/deep/er', 'outside']) mkdirSync(at(path));
    for (const path of ['run/file', 'run/deep/er/file', 'outside/file']) writeFileSync(at(path), '');
    symlinkSync(at('outside'), at('run/deep/link'));
    for (const path of ['outside', 'run/deep/er', 'run/deep']) chmodSync(at(path), 0o500);
    chmodSync(at('run'), 0);
    await removeFolder(at('run'));
    await removeFolder(at('never-there'));
    console.log(existsSync(at('run')), existsSync(at('outside/file')), (statSync(at('outside')).mode & 0o777).toString(8));
    chmodSync(at('outside'), 0o700);`;
  expect(asOrdinaryUser(source)).toEqual({ stdout: 'false true 500\n', stderr: '' });
});

test('a folder that is nested deeper than a path can say is removed', () => {
  const base = makeTemporaryFolder('deep');
  const source = `
    import { existsSync, mkdirSync } from 'node:fs';
    import { removeFolder } from '${compiled('worker/remove-folder.js')}';
    const name = 'x'.repeat(200);
    process.chdir('${base}');
    for (let depth = 0; depth < 60; depth += 1) {
      mkdirSync(name);
      process.chdir(name);
    }
    process.chdir('/');
    await removeFolder('${base}');
    console.log(existsSync('${base}'));`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', source], {
    encoding: 'utf8',
  });
  expect({ stdout, stderr }).toEqual({ stdout: 'false\n', stderr: '' });
});

test('a worker whose folder was removed makes itself a new one', async () => {
  const tmp = makeTemporaryFolder('removed');
  await startWorker(tmp);
  const run = async (slug: string) => {
    const [runId = ''] = await acceptRuns(store, slug, { action: command('cat') });
    await eventually(async () => (await store.runs.get(runId))?.status).toBe('succeeded');
  };
  await run('before-removal');
  const [gone = ''] = readdirSync(tmp);
  spawnSync('rm', ['-r', join(tmp, gone)]);
  await run('after-removal');
  expect(readdirSync(tmp)).toHaveLength(1);
  expect(readdirSync(tmp)).not.toEqual([gone]);
});
