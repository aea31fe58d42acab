import { chmodSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { prepareWorkspace, type Workspace } from '../../../src/worker/workspace/workspace.ts';
import { openFolder } from '../workbench.ts';
import { GIT_HOME, startGitServer } from './git-server.ts';
import {
  createRepository,
  git,
  openTestWorkspaces,
  type TestRepository,
  writeFiles,
} from './repositories.ts';

const folder = openFolder();
const never = new AbortController().signal;
const RUN = { runId: 'run_7', subject: 'Fix the build', branch: 'orc/run_7', gitEnv: [] };

type Workspaces = ReturnType<typeof openTestWorkspaces>;

async function prepare(workspaces: Workspaces, repository: string, ref = 'main', gitEnv: string[] = []) {
  const request = { repository, ref, gitEnv, isRefOfCaller: false };
  const prepared = await prepareWorkspace(workspaces, request, never);
  if (prepared.status === 'ready') onTestFinished(() => prepared.workspace.remove());
  return prepared;
}

async function open(workspaces: Workspaces, repository: string, ...more: [ref?: string, gitEnv?: string[]]) {
  const prepared = await prepare(workspaces, repository, ...more);
  if (prepared.status !== 'ready') throw new Error(JSON.stringify(prepared));
  return prepared.workspace;
}

async function treeOf(workspace: Workspace, files: Readonly<Record<string, string>>): Promise<string> {
  writeFiles(workspace.folder, files);
  const captured = await workspace.capture([], never);
  if (captured.status !== 'captured') throw new Error(JSON.stringify(captured));
  return captured.tree;
}

function show(repository: TestRepository, branch: string): string {
  return git(repository.bare, 'log', '-1', '--format=%an|%cn|%s|%(trailers:only,unfold)|%P', branch, '--');
}

test('a push adds one commit of orc on top of the base, with the id of the run', async () => {
  const repository = createRepository(folder('one'));
  const workspace = await open(openTestWorkspaces(folder('one-cache')), repository.url);
  const tree = await treeOf(workspace, { 'fix.txt': 'fixed\n' });
  const pushed = await workspace.push({ ...RUN, repository: repository.url, tree }, never);
  expect(pushed).toEqual({
    status: 'pushed',
    branch: 'orc/run_7',
    commit: git(repository.bare, 'rev-parse', 'orc/run_7'),
  });
  expect(git(repository.bare, 'rev-parse', 'orc/run_7^{tree}')).toBe(tree);
  expect(show(repository, 'orc/run_7')).toBe(
    `orc|orc|Fix the build|Orc-Run-Id: run_7\n|${workspace.base.commit}`,
  );
});

test('what the agent committed is pushed as one commit of orc', async () => {
  const repository = createRepository(folder('committed'));
  const workspace = await open(openTestWorkspaces(folder('committed-cache')), repository.url);
  writeFiles(workspace.folder, { 'fix.txt': 'fixed\n' });
  git(workspace.folder, 'add', '--all');
  git(workspace.folder, 'commit', '--quiet', '-m', 'of the agent');
  const tree = await treeOf(workspace, {});
  await workspace.push({ ...RUN, repository: repository.url, tree }, never);
  expect(git(repository.bare, 'log', '--format=%s', 'orc/run_7', '--')).toBe('Fix the build\nchange');
  expect(git(repository.bare, 'show', 'orc/run_7:fix.txt')).toBe('fixed');
});

test('a second attempt at the same run pushes nothing again, or a commit on top of the first one', async () => {
  const repository = createRepository(folder('again'));
  const workspaces = openTestWorkspaces(folder('again-cache'));
  const first = await open(workspaces, repository.url);
  const tree = await treeOf(first, { 'fix.txt': '1\n' });
  const pushed = await first.push({ ...RUN, repository: repository.url, tree }, never);

  const same = await open(workspaces, repository.url);
  await treeOf(same, { 'fix.txt': '1\n' });
  expect(await same.push({ ...RUN, repository: repository.url, tree }, never)).toEqual(pushed);

  const base = repository.commit({ 'other.txt': 'meanwhile\n' });
  const last = await open(workspaces, repository.url);
  const other = await treeOf(last, { 'fix.txt': '2\n' });
  expect(await last.push({ ...RUN, repository: repository.url, tree: other }, never)).toMatchObject({
    status: 'pushed',
  });
  expect(git(repository.bare, 'rev-parse', 'orc/run_7^{tree}')).toBe(other);
  const commit = 'commit' in pushed ? pushed.commit : '';
  expect(show(repository, 'orc/run_7')).toMatch(new RegExp(`\\|${commit} ${base}$`));
});

test('the branch of another run, and one that somebody made, are never overwritten', async () => {
  const repository = createRepository(folder('taken'));
  const theirs = repository.commit({ 'a.txt': 'theirs\n' }, 'orc/run_7');
  const workspace = await open(openTestWorkspaces(folder('taken-cache')), repository.url);
  const tree = await treeOf(workspace, { 'a.txt': 'mine\n' });
  expect(await workspace.push({ ...RUN, repository: repository.url, tree }, never)).toMatchObject({
    reason: 'push_rejected',
    detail: 'the branch orc/run_7 exists, and is not of this run',
  });
  expect(git(repository.bare, 'rev-parse', 'orc/run_7')).toBe(theirs);

  // Nor are they moved on, which would not even take force.
  const base = git(repository.bare, 'rev-parse', 'main');
  git(repository.bare, 'branch', 'release', 'main');
  repository.commit({ 'b.txt': 'unreleased\n' });
  const newer = await open(openTestWorkspaces(folder('taken-cache-2')), repository.url);
  const request = { ...RUN, repository: repository.url, tree: await treeOf(newer, { 'a.txt': 'mine\n' }) };
  expect(await newer.push({ ...request, branch: 'release' }, never)).toMatchObject({
    reason: 'push_rejected',
  });
  expect(git(repository.bare, 'rev-parse', 'release')).toBe(base);
});

test.each(['pre-receive', 'post-receive'])(
  'a push whose connection ends in the hook %s is tried once more',
  async (name) => {
    const repository = createRepository(folder(`ends-in-${name}`));
    const hook = join(repository.bare, 'hooks', name);
    const once = folder(`ended-in-${name}`);
    mkdirSync(join(repository.bare, 'hooks'), { recursive: true });
    writeFileSync(hook, `#!/bin/sh\n[ -e '${once}' ] && exit 0\n: >'${once}'\nkill -9 $PPID\n`);
    chmodSync(hook, 0o755);
    const workspace = await open(openTestWorkspaces(folder(`ends-in-${name}-cache`)), repository.url);
    const tree = await treeOf(workspace, { 'a.txt': 'a\n' });
    const pushed = await workspace.push({ ...RUN, repository: repository.url, tree }, never);
    expect(existsSync(once)).toBe(true);
    const commit = git(repository.bare, 'rev-parse', 'orc/run_7');
    expect(pushed).toEqual({ status: 'pushed', branch: 'orc/run_7', commit });
    expect(git(repository.bare, 'rev-list', '--count', `${workspace.base.commit}..orc/run_7`)).toBe('1');
  },
);

test('the branch of the base is never pushed to', async () => {
  const repository = createRepository(folder('base'));
  const workspace = await open(openTestWorkspaces(folder('base-cache')), repository.url);
  const tree = await treeOf(workspace, { 'a.txt': 'a\n' });
  const request = { ...RUN, repository: repository.url, tree, branch: 'main' };
  expect(await workspace.push(request, never)).toMatchObject({ reason: 'push_rejected' });
  expect(git(repository.bare, 'rev-parse', 'main')).toBe(workspace.base.commit);
});

test('a push that a hook of the repository refuses fails with what the hook said', async () => {
  const repository = createRepository(folder('hook'));
  const hook = join(repository.bare, 'hooks', 'pre-receive');
  mkdirSync(join(repository.bare, 'hooks'), { recursive: true });
  writeFileSync(hook, '#!/bin/sh\necho "branch is protected" >&2\nexit 1\n');
  chmodSync(hook, 0o755);
  const workspace = await open(openTestWorkspaces(folder('hook-cache')), repository.url);
  const tree = await treeOf(workspace, { 'a.txt': 'a\n' });
  expect(await workspace.push({ ...RUN, repository: repository.url, tree }, never)).toMatchObject({
    reason: 'push_rejected',
    detail: '[remote rejected] (pre-receive hook declined): branch is protected',
  });
});

/** A repository behind a login, and a home with a credential helper that reads it from the environment. */
async function startServer(name: string) {
  const repository = createRepository(folder(name));
  const server = await startGitServer(folder(name), 'ada:correct-horse');
  const home = folder(`${name}-home`);
  writeFiles(home, GIT_HOME);
  const environment = { HOME: home, GIT_PASSWORD: 'correct-horse' };
  return { repository, server, url: `${server.origin}/bare.git`, environment };
}

test('a repository over HTTP is fetched and pushed to with a login that only git gets', async () => {
  const { repository, url, environment } = await startServer('http');
  const cache = folder('http-cache');
  const workspaces = openTestWorkspaces(cache, { environment });
  const workspace = await open(workspaces, url, 'main', ['GIT_PASSWORD']);
  const tree = await treeOf(workspace, { 'fix.txt': 'fixed\n' });
  const request = { ...RUN, repository: url, tree, gitEnv: ['GIT_PASSWORD'] };
  expect(await workspace.push(request, never)).toMatchObject({ status: 'pushed' });
  expect(git(repository.bare, 'show', 'orc/run_7:fix.txt')).toBe('fixed');
  const found = await import('node:child_process').then(({ spawnSync }) =>
    spawnSync('grep', ['-r', '-l', '-F', '-e', 'correct-horse', '-e', 'ada', cache], { encoding: 'utf8' }),
  );
  expect(found.stdout).toBe('');
});

test('a repository that refuses the login, or is not there, is unavailable, without a secret in the reason', async () => {
  const { server, url, environment } = await startServer('refused');
  const wrong = { ...environment, GIT_PASSWORD: 'wrong-horse-battery' };
  const refused = await prepare(
    openTestWorkspaces(folder('refused-cache'), { environment: wrong }),
    url,
    'main',
    ['GIT_PASSWORD'],
  );
  expect(refused).toMatchObject({
    reason: 'repo_unavailable',
    detail: expect.stringMatching(/Authentication failed/),
  });
  expect(JSON.stringify(refused)).not.toContain('wrong-horse');

  const without = await prepare(openTestWorkspaces(folder('refused-cache-2')), url);
  expect(without).toMatchObject({
    reason: 'repo_unavailable',
    detail: expect.stringMatching(/could not read Username/),
  });

  const gone = await prepare(
    openTestWorkspaces(folder('refused-cache-3'), { environment }),
    `${server.origin}/no.git`,
  );
  expect(gone).toMatchObject({ reason: 'repo_unavailable' });
});
