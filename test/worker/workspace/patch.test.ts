import {
  chmodSync,
  cpSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
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

async function open(name: string, repository: TestRepository): Promise<Workspace> {
  const prepared = await prepareWorkspace(
    openTestWorkspaces(folder(`${name}-cache`)),
    { repository: repository.url, ref: 'main', gitEnv: [], isRefOfCaller: false },
    never,
  );
  if (prepared.status !== 'ready') throw new Error(JSON.stringify(prepared));
  onTestFinished(() => prepared.workspace.remove());
  return prepared.workspace;
}

async function captureOf(workspace: Workspace) {
  const captured = await workspace.capture([], never);
  if (captured.status !== 'captured') throw new Error(JSON.stringify(captured));
  return captured;
}

/** Applies the patch to the base, as a reader of it does, and tells the tree that comes out. */
async function applied(name: string, repository: TestRepository, workspace: Workspace): Promise<string> {
  const patch = await workspace.patch(await captureOf(workspace), 1e7, never);
  if (patch.status !== 'written') throw new Error(JSON.stringify(patch));
  const clone = folder(`${name}-clone`);
  git(folder('.'), 'clone', '--quiet', repository.bare, clone);
  git(clone, 'checkout', '--quiet', workspace.base.commit);
  git(clone, 'apply', '--index', patch.path);
  return git(clone, 'write-tree');
}

test('the patch applied to the base gives the same tree, whatever was changed', async () => {
  const repository = createRepository(folder('any'), {
    'text.txt': 'one\ntwo\n',
    'moved.txt': 'moved\n'.repeat(20),
    'gone.txt': 'gone\n',
    'script.sh': 'true\n',
    'crlf.txt': 'a\r\nb\r\n',
    'becomes-link': 'a file\n',
    'becomes-folder': 'a file\n',
    'no-end': 'no line break at the end',
    '.gitattributes': '*.txt text=auto\n*.dat diff=own filter=own\n',
    '.gitignore': 'ignored\n',
  });
  const workspace = await open('any', repository);
  const at = (path: string) => join(workspace.folder, path);
  rmSync(at('gone.txt'));
  renameSync(at('moved.txt'), at('renamed.txt'));
  chmodSync(at('script.sh'), 0o755);
  rmSync(at('becomes-link'));
  symlinkSync('/etc/passwd', at('becomes-link'));
  rmSync(at('becomes-folder'));
  writeFiles(workspace.folder, {
    'text.txt': 'one\nTWO\n',
    'becomes-folder/file': '',
    'no-end': 'still none',
    ignored: 'left out\n',
    'empty/.keep': '',
    '-rf': 'a leading dash\n',
    'a\nb\t"c"': 'a line break\n',
    'ünïcode 😀': 'not ASCII\n',
    ' blank ': '',
  });
  writeFileSync(at('bytes.dat'), Buffer.from(Array.from({ length: 1000 }, (_, index) => index % 256)));
  writeFileSync(Buffer.from(`${workspace.folder}/latin-\xe9`, 'latin1'), 'a name that is not UTF-8\n');

  const { tree, isChanged } = await captureOf(workspace);
  expect(isChanged).toBe(true);
  expect(await applied('any', repository, workspace)).toBe(tree);
  const names = git(folder('any-clone'), 'ls-files', '-z').split('\0');
  expect(names).toContain('a\nb\t"c"');
  expect(names).toContain('-rf');
  expect(names).not.toContain('ignored');
});

test('a change that keeps size and time of a file is found', async () => {
  const repository = createRepository(folder('racy'), { 'a.txt': 'aaaa\n' });
  const workspace = await open('racy', repository);
  writeFiles(workspace.folder, { 'a.txt': 'bbbb\n' });
  const { tree } = await captureOf(workspace);
  expect(await applied('racy', repository, workspace)).toBe(tree);
  expect(readFileSync(folder('racy-clone/a.txt'), 'utf8')).toBe('bbbb\n');
});

test('a workspace in which nothing changed says so', async () => {
  const repository = createRepository(folder('unchanged'));
  const workspace = await open('unchanged', repository);
  expect(await captureOf(workspace)).toMatchObject({ isChanged: false, tree: workspace.base.tree });
});

test('a patch that is larger than it may be is not made', async () => {
  const repository = createRepository(folder('large'));
  const workspace = await open('large', repository);
  writeFiles(workspace.folder, { 'large.txt': 'x\n'.repeat(100_000) });
  expect(await workspace.patch(await captureOf(workspace), 10_000, never)).toEqual({ status: 'too_large' });
});

test('git repositories that the agent made hide no files, and are in their places afterwards', async () => {
  const repository = createRepository(folder('nested'), { 'src/a.txt': 'a\n', file: '' });
  const workspace = await open('nested', repository);
  const at = (path: string) => join(workspace.folder, path);
  rmSync(at('file'));
  for (const path of ['empty', 'full', 'full/deep/er', 'src', 'file']) {
    mkdirSync(at(path), { recursive: true });
    git(at(path), 'init', '--quiet');
    writeFiles(at(path), { 'hidden.txt': `${path}\n` });
  }
  git(at('full'), 'add', 'hidden.txt');
  git(at('full'), 'commit', '--quiet', '-m', 'hide');
  writeFiles(workspace.folder, {
    'pointer/.git': 'gitdir: ../full/.git\n',
    'pointer/hidden.txt': 'pointer\n',
  });
  const { tree } = await captureOf(workspace);
  expect(
    git(
      workspace.folder,
      '--git-dir',
      join(workspace.folder, '../git'),
      'ls-tree',
      '-r',
      '--name-only',
      tree,
    ),
  ).toBe(
    [
      ...[
        'empty/hidden.txt',
        'file/hidden.txt',
        'full/deep/er/hidden.txt',
        'full/hidden.txt',
        'pointer/hidden.txt',
      ],
      ...['src/a.txt', 'src/hidden.txt'],
    ].join('\n'),
  );
  expect(git(at('full'), 'log', '--format=%s')).toBe('hide');
  expect(await applied('nested', repository, workspace)).toBe(tree);
});

test('nothing that a workspace holds is executed or followed by the git of the worker', async () => {
  const repository = createRepository(folder('evil'), {
    'src/a.txt': 'a\n',
    '.gitattributes': '*.txt filter=own diff=own merge=own\n',
  });
  // A submodule, in whose place the agent can make a repository of its own.
  const sub = createRepository(folder('evil-sub'));
  git(
    folder('evil/tree'),
    '-c',
    'protocol.file.allow=always',
    'submodule',
    'add',
    '--quiet',
    sub.bare,
    'sub',
  );
  repository.commit({});
  const workspace = await open('evil', repository);
  const witness = folder('evil-witness');
  const outside = folder('evil-outside');
  writeFiles(outside, { secret: 'secret\n' });
  const program = join(workspace.folder, 'program.sh');
  writeFiles(workspace.folder, { 'program.sh': `#!/bin/sh\necho "$0 $*" >> ${witness}\ncat\n` });
  chmodSync(program, 0o755);
  const config = [
    `[core]\n\tfsmonitor = ${program}\n\thooksPath = ${workspace.folder}/hooks\n\tpager = ${program}\n\tsshCommand = ${program}`,
    `[filter "own"]\n\tclean = ${program}\n\tsmudge = ${program}\n\tprocess = ${program}\n\trequired = true`,
    `[diff "own"]\n\ttextconv = ${program}\n\tcommand = ${program}`,
    `[diff]\n\texternal = ${program}\n[gpg]\n\tprogram = ${program}\n[credential]\n\thelper = "!${program}"`,
    `[remote "origin"]\n\turl = ext::${program}\n\tuploadpack = ${program}`,
    `[submodule]\n\trecurse = true\n[submodule "sub"]\n\turl = ext::${program}\n\tactive = true\n`,
  ].join('\n');
  for (const path of ['.', 'sub', 'nested']) {
    const place = join(workspace.folder, path);
    mkdirSync(place, { recursive: true });
    if (path !== '.') git(place, 'init', '--quiet');
    writeFiles(place, { 'b.txt': 'b\n', '.gitattributes': '* filter=own diff=own\n' });
    if (path !== '.') {
      git(place, 'add', 'b.txt');
      git(place, 'commit', '--quiet', '-m', 'b');
    }
    writeFiles(place, { '.git/config': config, 'b.txt': 'c\n' });
    for (const hook of [
      'pre-commit',
      'post-checkout',
      'pre-push',
      'post-index-change',
      'reference-transaction',
    ]) {
      cpSync(program, join(place, '.git/hooks', hook));
      writeFiles(workspace.folder, { [`hooks/${hook}`]: '' });
      cpSync(program, join(workspace.folder, 'hooks', hook));
    }
  }
  writeFiles(workspace.folder, {
    '.gitmodules': `[submodule "sub"]\n\tpath = sub\n\turl = ext::${program}\n\tignore = none\n`,
  });
  rmSync(join(workspace.folder, 'src'), { recursive: true });
  symlinkSync(outside, join(workspace.folder, 'src'));

  const captured = await captureOf(workspace);
  const list = git(
    folder('.'),
    '--git-dir',
    join(workspace.folder, '../git'),
    'ls-tree',
    '-r',
    captured.tree,
  );
  expect(list).toMatch(/^120000 .*\tsrc$/m);
  expect(list).toMatch(/\tnested\/b\.txt$/m);
  expect(list).not.toMatch(/secret/);
  expect((await workspace.patch(captured, 1e6, never)).status).toBe('written');
  const pushed = await workspace.push(
    {
      repository: repository.url,
      gitEnv: [],
      branch: 'x',
      tree: captured.tree,
      runId: 'run_1',
      subject: 'x',
    },
    never,
  );
  expect(pushed.status).toBe('pushed');
  const restored = await workspace.capture(['src', 'sub'], never);
  expect(restored.status).toBe('captured');
  expect(readFileSync(join(workspace.folder, 'src/a.txt'), 'utf8')).toBe('a\n');
  expect(readFileSync(join(outside, 'secret'), 'utf8')).toBe('secret\n');
  expect(() => readFileSync(witness, 'utf8')).toThrow('ENOENT');
  // It would have been executed by a git that trusts the workspace.
  expect(() => git(workspace.folder, 'status')).toThrow('program.sh');
  expect(readFileSync(witness, 'utf8')).toContain('program.sh');
});
