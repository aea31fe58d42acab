import { execFileSync } from 'node:child_process';
import { chmodSync, linkSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { MAX_ARTIFACT_DEPTH, MAX_ARTIFACTS } from '../../src/core/artifact.ts';
import { AttemptArtifacts } from '../../src/worker/attempt-artifacts.ts';
import { openFolder, sha256 } from './workbench.ts';

const path = openFolder();
let folders = 0;

/** A folder with these files. */
function folderWith(files: Record<string, string>): string {
  folders += 1;
  const folder = path(`${folders}`);
  mkdirSync(folder);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

async function collected(folder: string, limitBytes = 1000) {
  const artifacts = new AttemptArtifacts(limitBytes);
  await artifacts.collect(folder);
  return { ...artifacts.list(), data: artifacts.data().map(String) };
}

const artifact = (name: string, text: string) => ({ name, bytes: text.length, sha256: sha256(text) });

test('the files of a folder and of its folders are kept, by name, with their size and hash', async () => {
  const folder = folderWith({ 'report/b.txt': 'bee', 'a.txt': 'a', 'report/deep/c': '', 'new\nline': 'n' });
  mkdirSync(join(folder, 'empty'));
  expect(await collected(folder)).toEqual({
    artifacts: [
      artifact('a.txt', 'a'),
      artifact('new\nline', 'n'),
      artifact('report/b.txt', 'bee'),
      artifact('report/deep/c', ''),
    ],
    data: ['a', 'n', 'bee', ''],
    omitted: [],
    omittedCount: 0,
  });
});

test('a file that does not fit is left out and told with its size; smaller ones after it are kept', async () => {
  const folder = folderWith({ a: 'x'.repeat(600), b: 'x'.repeat(500), c: 'x'.repeat(400), d: 'x' });
  truncateSync(join(folder, 'b'), 2 ** 40);
  const { artifacts, omitted } = await collected(folder);
  expect(artifacts.map(({ name }) => name)).toEqual(['a', 'c']);
  expect(omitted).toEqual([
    { name: 'b', bytes: 2 ** 40, reason: 'too_large' },
    { name: 'd', bytes: 1, reason: 'too_large' },
  ]);
});

test('files beyond the largest number are told, the first of them by name', async () => {
  const names = Array.from({ length: MAX_ARTIFACTS + 150 }, (_, index) => `${1000 + index}`);
  const { artifacts, omitted, omittedCount } = await collected(
    folderWith(Object.fromEntries(names.map((name) => [name, '']))),
  );
  expect(artifacts.map(({ name }) => name)).toEqual(names.slice(0, MAX_ARTIFACTS));
  expect(omitted[0]).toEqual({ name: '1100', bytes: 0, reason: 'too_many' });
  expect([omitted.length, omittedCount]).toEqual([100, 150]);
});

test('links, FIFOs and sockets are never followed or opened, and are told', async () => {
  const outside = folderWith({ secret: 'outside' });
  const folder = folderWith({ plain: 'inside' });
  symlinkSync(join(outside, 'secret'), join(folder, 'file-link'));
  symlinkSync(outside, join(folder, 'folder-link'));
  symlinkSync('..', join(folder, 'parent-link'));
  symlinkSync('nowhere', join(folder, 'broken-link'));
  execFileSync('sh', ['-c', 'mkfifo fifo'], { cwd: folder });
  const server = createServer().listen(join(folder, 'socket'));
  onTestFinished(() => void server.close());
  const { artifacts, omitted } = await collected(folder);
  expect(artifacts).toEqual([artifact('plain', 'inside')]);
  const names = ['broken-link', 'fifo', 'file-link', 'folder-link', 'parent-link', 'socket'];
  expect(omitted).toEqual(names.map((name) => ({ name, reason: 'not_a_file' })));
});

test('a folder that was replaced by a link is not followed', async () => {
  const folder = path('replaced');
  symlinkSync(folderWith({ secret: 'outside' }), folder);
  expect(await collected(folder)).toMatchObject({
    artifacts: [],
    omitted: [{ name: '.', reason: 'not_a_file' }],
  });
});

test("a hard link to a file of the worker's own user is a file like any other", async () => {
  const folder = folderWith({ first: 'same' });
  linkSync(join(folder, 'first'), join(folder, 'second'));
  expect((await collected(folder)).artifacts).toEqual([
    artifact('first', 'same'),
    artifact('second', 'same'),
  ]);
});

test('a file that may not be read is told; root may read all', async () => {
  const folder = folderWith({ closed: 'x', open: 'x' });
  chmodSync(join(folder, 'closed'), 0);
  const isRoot = process.geteuid?.() === 0;
  const { artifacts, omitted } = await collected(folder);
  expect(artifacts).toEqual([...(isRoot ? [artifact('closed', 'x')] : []), artifact('open', 'x')]);
  expect(omitted).toEqual(isRoot ? [] : [{ name: 'closed', reason: 'unreadable' }]);
});

test('names that are too deep, too long or not UTF-8 are told', async () => {
  const deep = Array.from({ length: MAX_ARTIFACT_DEPTH }, () => 'f').join('/');
  const long = ['l'.repeat(200), 'l'.repeat(200), 'l'.repeat(200)].join('/');
  const folder = folderWith({ [`${deep}/kept`]: 'x', [`${deep}/f/lost`]: 'x', [long]: 'x' });
  const { artifacts, omitted } = await collected(folder);
  expect(artifacts).toEqual([artifact(`${deep}/kept`, 'x')]);
  expect(omitted).toEqual([
    { name: `${deep}/f/`, reason: 'too_deep' },
    { name: long.slice(0, 512), reason: 'bad_name' },
  ]);
  const bytes = folderWith({});
  writeFileSync(Buffer.concat([Buffer.from(`${bytes}/`), Buffer.from([0x66, 0xff])]), 'x');
  expect(await collected(bytes)).toMatchObject({
    artifacts: [],
    omitted: [{ name: 'f\ufffd', reason: 'bad_name' }],
  });
});

test('of a folder with too many entries only the first ones are looked at', async () => {
  const folder = folderWith({});
  execFileSync('sh', ['-c', 'seq 1 1500 | xargs touch'], { cwd: folder });
  const { artifacts, omittedCount, omitted } = await collected(folder);
  expect(artifacts).toHaveLength(MAX_ARTIFACTS);
  expect(omittedCount).toBe(1000 - MAX_ARTIFACTS + 1);
  expect(omitted[0]).toEqual({ name: '…', reason: 'too_many' });
});

test('an action adds a file of its own under a name; a taken name and one that leaves the folder are refused', async () => {
  const folder = folderWith({ patch: 'diff', 'changes.patch': 'other' });
  const artifacts = new AttemptArtifacts(1000);
  await artifacts.addFile('changes.patch', join(folder, 'patch'));
  await artifacts.addFile('../escape', join(folder, 'patch'));
  await artifacts.addFile('/absolute', join(folder, 'patch'));
  await artifacts.addFile('missing', join(folder, 'none'));
  await artifacts.addFile('folder', folder);
  await artifacts.collect(folder);
  expect(artifacts.list()).toEqual({
    artifacts: [artifact('changes.patch', 'diff'), artifact('patch', 'diff')],
    omitted: [
      { name: '../escape', reason: 'bad_name' },
      { name: '/absolute', reason: 'bad_name' },
      { name: 'missing', reason: 'unreadable' },
      { name: 'folder', reason: 'not_a_file' },
      { name: 'changes.patch', bytes: 5, reason: 'duplicate' },
    ],
    omittedCount: 5,
  });
});
