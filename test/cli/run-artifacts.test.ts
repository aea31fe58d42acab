import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ArtifactList } from '../../src/core/artifact.ts';
import { runOrc } from '../support/orc.ts';
import { type OrcProcess, startWorkerProcess } from '../support/orc-process.ts';
import { command, openTestStore } from '../support/store.ts';
import { acceptRuns, eventually, openFolder, readLog, sha256 } from '../worker/workbench.ts';

const store = openTestStore();
const { redis, keys } = store;
const folder = openFolder();

let worker: OrcProcess;
beforeAll(async () => {
  worker = await startWorkerProcess({ ...store.env, ARTIFACT_LIMIT_BYTES: '300000' });
});
afterAll(async () => {
  await worker.stop();
});

const orc = (...args: string[]) => runOrc(['runs', ...args], { env: store.env, cwd: folder('.') });

/** Has a run executed whose command is this shell script, in its folder for artifacts. */
async function executed(slug: string, source: string, attempts = 1): Promise<string> {
  const action = command('sh', '-c', `cd "$ORC_ARTIFACTS_DIR"; ${source}`);
  const [runId = ''] = await acceptRuns(store, slug, { action, attempts });
  await eventually(async () => (await store.runs.get(runId))?.endedAt).toBeInstanceOf(Date);
  return runId;
}

const LARGE = `head -c 290000 /dev/zero > sub/large`;

test('a run that failed has its artifacts; they are listed, downloaded byte for byte and told what is missing', async () => {
  const runId = await executed(
    'failing',
    `mkdir sub; ${LARGE}; echo log > a.log; head -c 300000 /dev/zero > zz; ln -s a.log link; exit 3`,
  );
  const large = Buffer.alloc(290_000);
  const { code, stdout, stderr } = await orc('artifacts', runId);
  expect([code, stderr]).toEqual([
    0,
    'not kept: "link" is not a file; links and devices are not followed\n' +
      'not kept: "zz" (300000 bytes) does not fit into ARTIFACT_LIMIT_BYTES\n',
  ]);
  const [, ...rows] = stdout.trimEnd().split('\n');
  expect(rows.map((row) => row.split(/ +/))).toEqual([
    ['4', sha256('log\n'), 'a.log'],
    ['290000', sha256(large), 'sub/large'],
  ]);

  const downloaded = await orc('artifacts', runId, '--download', 'report', '--json');
  expect(JSON.parse(downloaded.stdout)).toMatchObject({
    runId,
    omittedCount: 2,
    files: [folder('report/a.log'), folder('report/sub/large')],
  });
  expect(readFileSync(folder('report/sub/large')).equals(large)).toBe(true);
  const modes = ['report', 'report/sub', 'report/a.log'].map((path) => statSync(folder(path)).mode & 0o777);
  expect(modes).toEqual([0o700, 0o700, 0o600]);

  const shown = await orc('show', runId);
  expect(shown.stdout).toMatch(/^artifacts +2, 290004 bytes: orc runs artifacts$/m);
  expect(shown.stdout).toMatch(/^not kept +"link" is not a file/m);
  expect((await readLog(store, runId)).notes).toContain(
    'Not kept as an artifact: "zz" (300000 bytes) does not fit into ARTIFACT_LIMIT_BYTES.\n',
  );
});

test('the artifacts of the last attempt count, also when it left none', async () => {
  const script = 'echo $ORC_ATTEMPT > attempt-$ORC_ATTEMPT; exit 1';
  const [twice, none] = await Promise.all([
    executed('twice', script, 2),
    executed('none', `[ $ORC_ATTEMPT = 2 ] || ${script}`, 2),
  ]);
  expect(await store.artifacts.list(twice)).toMatchObject({
    attempt: 2,
    artifacts: [{ name: 'attempt-2', sha256: sha256('2\n') }],
  });
  expect(await redis.exists(keys.artifacts(none))).toBe(0);
  expect((await orc('artifacts', none)).stdout).toBe('The run has no artifacts.\n');
});

test('a download overwrites nothing and then writes nothing', async () => {
  const runId = await executed('kept', 'echo new > b; echo new > a');
  mkdirSync(folder('full'));
  writeFileSync(folder('full/b'), 'old');
  const { code, stdout, stderr } = await orc('artifacts', runId, '--download', 'full');
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toContain(
    `${folder('full/b')} already exists. Choose another directory; nothing was written.`,
  );
  expect(readdirSync(folder('full'))).toEqual(['b']);
  expect(readFileSync(folder('full/b'), 'utf8')).toBe('old');
});

test('a download goes through no link, and makes control characters in names visible', async () => {
  const runId = await executed(
    'hostile',
    `mkdir sub; echo x > sub/file; printf y > "$(printf 'a\\033[2Jb')"`,
  );
  mkdirSync(folder('outside'));
  mkdirSync(folder('linked'));
  symlinkSync(folder('outside'), folder('linked/sub'));
  const refused = await orc('artifacts', runId, '--download', 'linked');
  expect(refused.stderr).toContain(`${folder('linked/sub')} is not a folder.`);
  expect(readdirSync(folder('outside'))).toEqual([]);

  const { code } = await orc('artifacts', runId, '--download', 'plain');
  expect(code).toBe(0);
  expect(readdirSync(folder('plain')).sort()).toEqual(['a\\u001b[2Jb', 'sub']);
});

test.each(['../escape', '/etc/escape', 'a/../../escape', 'a//b', ''])(
  'a name %j that somebody wrote into Redis is refused',
  async (name) => {
    const runId = await executed('changed', 'echo x > file');
    const list: ArtifactList = {
      artifacts: [{ name, bytes: 2, sha256: sha256('x\n') }],
      omitted: [],
      omittedCount: 0,
    };
    await redis.hset(keys.artifacts(runId), 'list', JSON.stringify(list));
    const { code, stderr } = await orc('artifacts', runId, '--download', 'refused');
    expect(code).toBe(1);
    expect(stderr).toContain(`${JSON.stringify(name)} is not the name of an artifact; nothing was written.`);
    await store.automations.delete('changed');
    expect(readdirSync(join(folder('.')))).not.toContain('escape');
  },
);

test('of a run whose log and artifacts were removed to stay within KEEP_BYTES, every command says so', async () => {
  const runId = await executed('dropped', `echo x > file; echo '{}' > "$ORC_RESULT_FILE"`);
  await eventually(() => redis.zscore(keys.endedRuns(), runId)).not.toBeNull();
  await store.kept.drop([runId]);
  const sentence = 'Its log, result and artifacts were removed to stay within KEEP_BYTES';
  const outputs = await Promise.all(['show', 'logs', 'artifacts'].map((verb) => orc(verb, runId)));
  for (const { code, stdout, stderr } of outputs) {
    expect([code, stdout + stderr]).toEqual([0, expect.stringContaining(sentence)]);
  }
  const result = await orc('result', runId);
  expect([result.code, result.stderr]).toEqual([1, expect.stringContaining(sentence)]);
  expect(JSON.parse((await orc('artifacts', runId, '--json')).stdout)).toMatchObject({ dropped: true });
});

test('bytes that somebody changed in Redis are noticed', async () => {
  const runId = await executed('tampered', 'echo x > file');
  await redis.hset(keys.artifacts(runId), '0:0', 'y\n');
  const { code, stderr } = await orc('artifacts', runId, '--download', 'tampered');
  expect(code).toBe(1);
  expect(stderr).toContain('does not have the hash it was stored with');
});

test('a run that has not ended cannot be downloaded, and one that does not exist is an error', async () => {
  const idle = openTestStore();
  const [runId = ''] = await acceptRuns(idle, 'waits');
  const waiting = await runOrc(['runs', 'artifacts', runId, '--download', 'x'], { env: idle.env });
  expect([waiting.code, waiting.stderr]).toEqual([1, expect.stringContaining('has not ended')]);
  const missing = await orc('artifacts', 'run_unknown');
  expect([missing.code, missing.stderr]).toEqual([
    1,
    expect.stringContaining('There is no run "run_unknown".'),
  ]);
});
