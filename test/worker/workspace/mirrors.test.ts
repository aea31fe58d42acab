import { spawn } from 'node:child_process';
import { once, setMaxListeners } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Git } from '../../../src/worker/workspace/git.ts';
import { prepareWorkspace } from '../../../src/worker/workspace/workspace.ts';
import { compiled } from '../../support/repository.ts';
import { eventually, openFolder } from '../workbench.ts';
import { startGitServer } from './git-server.ts';
import {
  createRepository,
  git,
  openTestWorkspaces,
  type TestRepository,
  writeFiles,
} from './repositories.ts';

const folder = openFolder();
const never = new AbortController().signal;
// Many attempts share it here.
setMaxListeners(0, never);
type Workspaces = ReturnType<typeof openTestWorkspaces>;

async function prepare(
  workspaces: Workspaces,
  url: string,
  changes: { ref?: string; isRefOfCaller?: boolean; signal?: AbortSignal; gitEnv?: string[] } = {},
) {
  const { signal = never, ...request } = changes;
  const prepared = await prepareWorkspace(
    workspaces,
    { repository: url, gitEnv: [], isRefOfCaller: false, ...request },
    signal,
  );
  if (prepared.status === 'ready') onTestFinished(() => prepared.workspace.remove());
  return prepared;
}

/** What is checked out at a ref, or why nothing is. */
async function outcomeOf(
  workspaces: Workspaces,
  { url }: TestRepository,
  ref: string,
  isRefOfCaller = false,
) {
  const prepared = await prepare(workspaces, url, { ref, isRefOfCaller });
  if (prepared.status !== 'ready') return 'reason' in prepared ? prepared.reason : prepared.status;
  const { commit, branch } = prepared.workspace.base;
  return branch === undefined ? commit : `${branch} ${commit}`;
}

/** The git directory of the only mirror. */
function mirrorIn(cache: string): string {
  const [name = ''] = readdirSync(join(cache, 'repositories'));
  return join(cache, 'repositories', name, 'mirror.git');
}

test('a ref is a branch, a tag, a commit or a full ref, and branches come first', async () => {
  const repository = createRepository(folder('refs'));
  const first = git(repository.bare, 'rev-parse', 'main');
  const second = repository.commit({ 'a.txt': 'a\n' });
  git(repository.bare, 'tag', 'v1', first);
  git(repository.bare, 'tag', '-a', '-m', 'annotated', 'v2', first);
  git(repository.bare, 'tag', 'main', first);
  git(repository.bare, 'update-ref', 'refs/pull/7/head', first);
  const workspaces = openTestWorkspaces(folder('refs-cache'));
  const found = (ref: string) => outcomeOf(workspaces, repository, ref);
  expect(await found('main')).toBe(`main ${second}`);
  expect(await found('refs/heads/main')).toBe(`main ${second}`);
  expect(await found('refs/tags/main')).toBe(first);
  expect(await found('v1')).toBe(first);
  expect(await found('v2')).toBe(first);
  expect(await found(first)).toBe(first);
  expect(await found('refs/pull/7/head')).toBe(first);
});

test('what the repository does not have is not found, and neither is what is no ref', async () => {
  const repository = createRepository(folder('unknown'));
  const workspaces = openTestWorkspaces(folder('unknown-cache'));
  const refs = [
    'never',
    'refs/heads/never',
    'refs/pull/1/head',
    '0'.repeat(40),
    'f'.repeat(64),
    '--all',
    'main~1',
  ];
  for (const ref of refs) expect(await outcomeOf(workspaces, repository, ref)).toBe('ref_not_found');
  git(repository.bare, 'update-ref', '-d', 'refs/heads/main');
  expect(await prepare(workspaces, repository.url)).toMatchObject({ reason: 'ref_not_found' });
});

test('a caller reaches only what is part of a branch or a tag', async () => {
  const repository = createRepository(folder('caller'));
  const main = git(repository.bare, 'rev-parse', 'main');
  const strange = repository.commit({ 'evil.txt': '' }, 'fork');
  git(repository.bare, 'update-ref', 'refs/pull/7/head', strange);
  git(repository.bare, 'update-ref', '-d', 'refs/heads/fork');
  git(repository.bare, 'config', 'uploadpack.allowAnySHA1InWant', 'true');
  const workspaces = openTestWorkspaces(folder('caller-cache'));
  // The operator can have it, and then the mirror does.
  expect(await outcomeOf(workspaces, repository, strange)).toBe(strange);
  expect(await outcomeOf(workspaces, repository, 'refs/pull/7/head')).toBe(strange);
  expect(await outcomeOf(workspaces, repository, strange, true)).toBe('ref_not_found');
  expect(await outcomeOf(workspaces, repository, 'refs/pull/7/head', true)).toBe('ref_not_found');
  expect(await outcomeOf(workspaces, repository, main, true)).toBe(main);
  expect(await outcomeOf(workspaces, repository, 'main', true)).toBe(`main ${main}`);
});

test('what has changed in the repository is in the next workspace, deleted and rewritten branches too', async () => {
  const repository = createRepository(folder('changed'));
  repository.commit({ 'a.txt': 'a\n' }, 'a');
  const workspaces = openTestWorkspaces(folder('changed-cache'));
  await outcomeOf(workspaces, repository, 'a');
  git(repository.bare, 'update-ref', '-d', 'refs/heads/a');
  // A name that the mirror could not have beside the former one.
  const deeper = repository.commit({ 'b.txt': 'b\n' }, 'a/b');
  git(repository.bare, 'update-ref', 'refs/heads/main', deeper);
  expect(await outcomeOf(workspaces, repository, 'a/b')).toBe(`a/b ${deeper}`);
  expect(await outcomeOf(workspaces, repository, 'a')).toBe('ref_not_found');
  expect(await outcomeOf(workspaces, repository, 'main')).toBe(`main ${deeper}`);
});

test('repositories whose objects have SHA-256 names are checked out, changed and pushed to', async () => {
  const repository = createRepository(folder('sha256'), { 'a.txt': 'a\n' }, '--object-format=sha256');
  const workspaces = openTestWorkspaces(folder('sha256-cache'));
  for (let time = 0; time < 2; time += 1) {
    const prepared = await prepare(workspaces, repository.url, { ref: 'main' });
    if (prepared.status !== 'ready') throw new Error(JSON.stringify(prepared));
    const { workspace } = prepared;
    expect(workspace.base.commit).toHaveLength(64);
    writeFiles(workspace.folder, { 'b.txt': 'b\n' });
    expect(git(workspace.folder, 'status', '--porcelain')).toBe('?? b.txt');
    const captured = await workspace.capture([], never);
    if (captured.status !== 'captured') throw new Error(JSON.stringify(captured));
    const request = { repository: repository.url, gitEnv: [], branch: 'x', runId: 'run_1', subject: 'x' };
    expect((await workspace.push({ ...request, tree: captured.tree }, never)).status).toBe('pushed');
  }
});

test('ten checkouts at once of one repository fetch it once, and none sees what another one does', async () => {
  const repository = createRepository(folder('ten'));
  const server = await startGitServer(folder('ten'), 'ada:correct-horse');
  const home = folder('ten-home');
  writeFiles(home, {
    '.gitconfig': '[credential]\n\thelper = "!f() { echo username=ada; echo password=correct-horse; }; f"\n',
  });
  const workspaces = openTestWorkspaces(folder('ten-cache'), { environment: { HOME: home } });
  const url = `${server.origin}/bare.git`;
  await prepare(workspaces, url, { ref: 'main' });
  const fetches = () =>
    server.requests.filter((request) => request.endsWith('?service=git-upload-pack')).length;
  const before = fetches();
  const prepared = await Promise.all(
    Array.from({ length: 10 }, () => prepare(workspaces, url, { ref: 'main' })),
  );
  // A request without the login and one with it; the first fetch may have begun before the last of the ten asked.
  expect(fetches() - before).toBeLessThanOrEqual(4);
  expect(prepared.map(({ status }) => status)).toEqual(Array(10).fill('ready'));
  const trees = await Promise.all(
    prepared.map(async (each, index) => {
      if (each.status !== 'ready') return undefined;
      writeFiles(each.workspace.folder, { 'mine.txt': `${index}\n` });
      return each.workspace.capture([], never);
    }),
  );
  expect(new Set(trees.map((each) => (each?.status === 'captured' ? each.tree : ''))).size).toBe(10);
  expect(repository.url).toBeTruthy();
});

test.each([
  ['a pack is gone', (mirror: string) => removePacks(mirror)],
  ['a pack is cut off', (mirror: string) => cutPacks(mirror)],
  [
    'a lock was left by a git that was killed',
    (mirror: string) => writeFileSync(join(mirror, 'packed-refs.lock'), ''),
  ],
  [
    'its refs are garbage',
    (mirror: string) => writeFiles(mirror, { 'refs/heads/main': 'garbage\n', 'packed-refs': 'x' }),
  ],
  ['its configuration is garbage', (mirror: string) => writeFileSync(join(mirror, 'config'), '[')],
])('a mirror is made anew when %s', async (damaged, damage) => {
  const name = damaged.replaceAll(' ', '-');
  const repository = createRepository(folder(name));
  const cache = folder(`${name}-cache`);
  const workspaces = openTestWorkspaces(cache);
  const first = await prepare(workspaces, repository.url, { ref: 'main' });
  damage(mirrorIn(cache));
  const commit = repository.commit({ 'a.txt': 'a\n' });
  expect(await outcomeOf(workspaces, repository, 'main')).toBe(`main ${commit}`);
  // An attempt that goes on has its own objects.
  if (first.status !== 'ready') throw new Error(JSON.stringify(first));
  expect(await first.workspace.capture(['README.md'], never)).toMatchObject({ status: 'captured' });
});

test('the folder of the mirrors may have any path, also one that is too long for a socket', async () => {
  const repository = createRepository(folder('shop'));
  const workspaces = openTestWorkspaces(folder('a-long-name/'.repeat(12)));
  expect(await outcomeOf(workspaces, repository, 'main')).toMatch(/^main /);
});

function removePacks(mirror: string): void {
  rmSync(join(mirror, 'objects/pack'), { recursive: true });
}

function cutPacks(mirror: string): void {
  for (const name of readdirSync(join(mirror, 'objects/pack'))) {
    const path = join(mirror, 'objects/pack', name);
    // The inode is shared with the attempts, so that it is replaced.
    rmSync(path);
    writeFileSync(path, 'PACK');
  }
}

test('a repository that cannot be reached keeps its mirror', async () => {
  const repository = createRepository(folder('away'));
  const cache = folder('away-cache');
  const workspaces = openTestWorkspaces(cache);
  await prepare(workspaces, repository.url, { ref: 'main' });
  const commit = git(repository.bare, 'rev-parse', 'main');
  rmSync(repository.bare, { recursive: true });
  expect(await outcomeOf(workspaces, repository, 'main')).toBe('repo_unavailable');
  // What a full id names cannot have changed.
  expect(await outcomeOf(workspaces, repository, commit)).toBe(commit);
});

test('mirrors beyond the limit and such that nobody uses are removed, the least recently used one first', async () => {
  const cache = folder('trimmed-cache');
  const urls = ['one', 'two', 'three'].map((name) => createRepository(folder(`trimmed-${name}`)).url);
  const all = openTestWorkspaces(cache);
  for (const url of urls) await prepare(all, url, { ref: 'main' });
  const mirrors = () =>
    readdirSync(join(cache, 'repositories')).filter((name) =>
      existsSync(join(cache, 'repositories', name, 'mirror.git')),
    );
  expect(mirrors()).toHaveLength(3);
  const [newest = ''] = mirrors().toSorted((a, b) => changedAt(cache, b) - changedAt(cache, a));

  const few = openTestWorkspaces(cache, { maxBytes: 1 });
  await prepare(few, urls[0] ?? '', { ref: 'main' });
  expect(mirrors()).toHaveLength(1);
  expect(mirrors()).not.toEqual([newest]);

  const [left = ''] = mirrors();
  const longAgo = new Date(Date.now() - 31 * 24 * 3_600_000);
  utimesSync(join(cache, 'repositories', left), longAgo, longAgo);
  await prepare(all, urls[1] ?? '', { ref: 'main' });
  expect(mirrors()).toHaveLength(1);
  expect(mirrors()).not.toEqual([left]);
});

function changedAt(cache: string, name: string): number {
  return statSync(join(cache, 'repositories', name)).mtimeMs;
}

test('nobody but its user can look into mirrors and workspaces', async () => {
  const repository = createRepository(folder('private'));
  const cache = folder('private-cache');
  await prepare(openTestWorkspaces(cache), repository.url, { ref: 'main' });
  for (const name of readdirSync(join(cache, 'repositories'))) {
    expect(statSync(join(cache, 'repositories', name)).mode & 0o777).toBe(0o700);
  }
  for (const name of readdirSync(join(cache, 'workspaces'))) {
    expect(statSync(join(cache, 'workspaces', name)).mode & 0o777).toBe(0o700);
  }
});

test('a worker without git says so', async () => {
  const workspaces = openTestWorkspaces(folder('missing-cache'), { environment: { PATH: '/nonexistent' } });
  expect(await prepare(workspaces, 'file:///never', { ref: 'main' })).toEqual({
    status: 'failed',
    reason: 'git_missing',
    detail: 'git is not on the PATH of the worker; install the package git',
  });
});

/** A server that takes requests and never answers. */
async function startSilentServer() {
  const { createServer } = await import('node:net');
  const server = createServer(() => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  return { server, url: `http://127.0.0.1:${port}/silent.git` };
}

test('a fetch ends with the attempt, and so does waiting for the fetch of another one', async () => {
  const { server, url } = await startSilentServer();
  const workspaces = openTestWorkspaces(folder('silent-cache'));
  const [fetching, waiting] = [new AbortController(), new AbortController()];
  const connected = once(server, 'connection');
  const first = prepare(workspaces, url, { ref: 'main', signal: fetching.signal });
  await connected;
  const second = prepare(workspaces, url, { ref: 'main', signal: waiting.signal });
  waiting.abort();
  expect(await second).toEqual({ status: 'interrupted' });
  fetching.abort();
  expect(await first).toEqual({ status: 'interrupted' });
});

test('a mirror whose process was killed in the middle of a fetch is free for the next one', async () => {
  const { server, url } = await startSilentServer();
  const cache = folder('killed-cache');
  const source = `
    import { openGit } from '${compiled('worker/workspace/git.js')}';
    import { openMirrors } from '${compiled('worker/workspace/mirrors.js')}';
    const git = openGit({ PATH: process.env.PATH }, 'worker-8');
    const mirrors = openMirrors({ folder: '${cache}/repositories', maxBytes: 1e9 });
    await mirrors.provide(git, { repository: '${url}', gitEnv: [], ref: 'main', isRefOfCaller: false }, '${cache}/git', new AbortController().signal);`;
  const connected = once(server, 'connection');
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: 'inherit' });
  onTestFinished(() => void child.kill('SIGKILL'));
  await connected;

  const ours = openTestWorkspaces(cache);
  const calls: string[] = [];
  const git: Git = (args, call) => {
    calls.push(args[0] ?? '');
    return ours.git(args, call);
  };
  const ending = new AbortController();
  const waiting = prepare({ ...ours, git }, url, { ref: 'main', signal: ending.signal });
  const again = once(server, 'connection');
  expect(calls).toEqual([]);
  child.kill('SIGKILL');
  await again;
  await eventually(() => calls).toEqual(['ls-remote']);
  ending.abort();
  expect(await waiting).toEqual({ status: 'interrupted' });
});

test('a copy that others could have written is not used', async () => {
  const repository = createRepository(folder('others'));
  for (const part of ['', 'place']) {
    const cache = folder(`others-cache${part}`);
    expect(await outcomeOf(openTestWorkspaces(cache), repository, 'main')).toMatch(/^main /);
    const place = part === '' ? join(cache, 'repositories') : join(mirrorIn(cache), '..');
    chmodSync(place, 0o777);
    await expect(outcomeOf(openTestWorkspaces(cache), repository, 'main')).rejects.toThrow(
      'other users can write',
    );
    chmodSync(place, 0o700);
    expect(await outcomeOf(openTestWorkspaces(cache), repository, 'main')).toMatch(/^main /);
    // Only root can give something away.
    if (process.getuid?.() !== 0) continue;
    chownSync(place, 65_534, 65_534);
    await expect(outcomeOf(openTestWorkspaces(cache), repository, 'main')).rejects.toThrow(
      'other users can write',
    );
    chownSync(place, 0, 0);
  }
});
