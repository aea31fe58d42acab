import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { prepareWorkspace, type Workspace } from '../../../src/worker/workspace/workspace.ts';
import { openFolder } from '../workbench.ts';
import {
  createRepository,
  git,
  openTestWorkspaces,
  type TestRepository,
  writeFiles,
} from './repositories.ts';

const folder = openFolder();
const never = new AbortController().signal;

async function prepare(
  name: string,
  repository: TestRepository,
  changes: { ref?: string; isRefOfCaller?: boolean } = {},
): Promise<Workspace> {
  const prepared = await prepareWorkspace(
    openTestWorkspaces(folder(`${name}-cache`)),
    { repository: repository.url, gitEnv: [], isRefOfCaller: false, ...changes },
    never,
  );
  if (prepared.status !== 'ready') throw new Error(JSON.stringify(prepared));
  onTestFinished(() => prepared.workspace.remove());
  return prepared.workspace;
}

test('a workspace holds the branch, and whoever works there can commit and see its history', async () => {
  const repository = createRepository(folder('branch'));
  const commit = repository.commit({ 'src/a.txt': 'a\n', '.gitignore': 'ignored\n' });
  const { folder: place, base } = await prepare('branch', repository, { ref: 'main' });
  expect(base).toMatchObject({ commit, branch: 'main', format: 'sha1' });
  expect(readFileSync(join(place, 'src/a.txt'), 'utf8')).toBe('a\n');
  expect(git(place, 'status', '--porcelain', '--branch')).toBe('## main');
  expect(git(place, 'log', '--format=%H')).toMatch(new RegExp(`^${commit}\n`));
  writeFiles(place, { 'b.txt': 'b\n' });
  git(place, 'add', '--all');
  git(place, 'commit', '--quiet', '-m', 'mine');
  expect(git(place, 'remote')).toBe('');
});

test('without a ref, a workspace holds the default branch', async () => {
  const repository = createRepository(folder('default'));
  const { base } = await prepare('default', repository);
  expect(base).toMatchObject({ branch: 'main' });
});

test('a file that git does not take is named', async () => {
  const repository = createRepository(folder('refused'));
  const workspace = await prepare('refused', repository);
  writeFiles(workspace.folder, { 'n/git~1': 'x' });
  expect(await workspace.capture([], never)).toMatchObject({
    reason: 'workspace_failed',
    detail: expect.stringContaining("'n/git~1'"),
  });
});

test('nothing is left of a workspace that was removed', async () => {
  const repository = createRepository(folder('removed'));
  const workspace = await prepare('removed', repository);
  await workspace.remove();
  expect(existsSync(workspace.folder)).toBe(false);
  const [worker = ''] = readdirSync(folder('removed-cache/workspaces'));
  expect(readdirSync(folder(`removed-cache/workspaces/${worker}`))).toEqual(['alive']);
});

test('attributes that an agent wrote do not change protected files, and those of the base do', async () => {
  const repository = createRepository(folder('attributes'), {
    '.gitattributes': '*.bat eol=crlf\n',
    'tests/list': 'a\nb\n',
    'tests/run.bat': 'a\nb\n',
  });
  const workspace = await prepare('attributes', repository);
  const read = (name: string) => readFileSync(join(workspace.folder, 'tests', name), 'utf8');
  expect([read('list'), read('run.bat')]).toEqual(['a\nb\n', 'a\r\nb\r\n']);
  writeFiles(workspace.folder, {
    '.gitattributes': '* eol=crlf\n*.bat eol=lf\n',
    'tests/.gitattributes': '* eol=crlf\n',
    'tests/list': 'only this\n',
  });
  expect(await workspace.capture(['tests/run.bat', 'tests'], never)).toMatchObject({ status: 'captured' });
  expect([read('list'), read('run.bat')]).toEqual(['a\nb\n', 'a\r\nb\r\n']);
});

test('protected paths are what they are in the base, whatever was done to them', async () => {
  const repository = createRepository(folder('protected'), {
    'tests/a.txt': 'a\n',
    'tests/deep/b.txt': 'b\n',
    'check.sh': 'exit 1\n',
    'src/c.txt': 'c\n',
    'x/y/z.txt': 'z\n',
    '.gitignore': 'ignored\n',
  });
  const outside = folder('protected-outside');
  writeFiles(outside, { 'z.txt': 'outside\n', ignored: '' });
  const workspace = await prepare('protected', repository);
  const at = (path: string) => join(workspace.folder, path);
  writeFiles(workspace.folder, {
    'tests/added.txt': '',
    'tests/ignored': '',
    'src/c.txt': 'changed\n',
    'new/n': '',
  });
  rmSync(at('tests/a.txt'));
  rmSync(at('tests/deep'), { recursive: true });
  symlinkSync(outside, at('tests/deep'));
  chmodSync(at('check.sh'), 0o755);
  rmSync(at('x'), { recursive: true });
  mkdirSync(at('x'));
  symlinkSync(outside, at('x/y'));
  symlinkSync(outside, at('never'));

  const captured = await workspace.capture(['tests/', 'check.sh', 'x/y/z.txt', 'new', 'never/z.txt'], never);
  expect(captured).toMatchObject({ status: 'captured', isChanged: true });
  expect(readdirSync(at('tests')).toSorted()).toEqual(['a.txt', 'deep']);
  expect(readFileSync(at('tests/deep/b.txt'), 'utf8')).toBe('b\n');
  expect(readFileSync(at('x/y/z.txt'), 'utf8')).toBe('z\n');
  expect(git(workspace.folder, 'status', '--porcelain')).toBe('M src/c.txt');
  expect(existsSync(at('new'))).toBe(false);
  expect(existsSync(at('never'))).toBe(false);
  expect(readFileSync(join(outside, 'z.txt'), 'utf8')).toBe('outside\n');
});
