import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openWorkspaces } from '../../../src/worker/workspace/open-workspaces.ts';
import { prepareWorkspace } from '../../../src/worker/workspace/workspace.ts';
import type { Part, Row } from '../part.ts';
import { cpuMsWithChildren } from '../runs-process.ts';

const FILES = 10_000;
const FILES_PER_FOLDER = 100;
const CHANGED_FILES = 20;

export const workspace: Part = {
  name: 'workspace',
  summary: `preparing, comparing and removing the workspace of an agent with ${FILES} files, against bare git`,
  run: async ({ directory, rounds, progress, defer }) => {
    const title = `A workspace of ${FILES} files: fetched into a warm mirror, checked out, ${CHANGED_FILES} changed files compared, removed`;
    if (process.platform !== 'linux') {
      return [{ title, rows: [], remarks: ['Skipped: CPU times are read from /proc.'] }];
    }
    const place = join(directory, 'workspace');
    const repository = createRepository(place);
    const contestants = {
      'bare git': openBareGit(place, repository),
      orc: await openOrc(place, repository, defer),
    };
    const rows: Row[] = Object.keys(contestants).map((name) => ({
      name,
      figures: [
        { unit: 'CPU ms', values: [] },
        { unit: 'ms', values: [] },
      ],
    }));
    // The first round fills the mirrors and caches.
    for (let round = 0; round <= rounds; round += 1) {
      for (const [index, [name, work]] of Object.entries(contestants).entries()) {
        const [cpu, startedAt] = [cpuMsWithChildren(process.pid), performance.now()];
        await work();
        const spent = [cpuMsWithChildren(process.pid) - cpu, performance.now() - startedAt];
        progress(`round ${round}: ${name} ${spent[0]} ms of CPU`);
        if (round === 0) continue;
        for (const [at, value] of spent.entries()) rows[index]?.figures[at]?.values.push(value);
      }
    }
    const remarks = [
      'bare git: git fetch, read-tree -u, add --all, write-tree, diff-tree, and rm -rf, without what keeps an agent out of them.',
      'CPU: of this process and of all that it started and waited for.',
    ];
    return [{ title, rows, reference: 'bare git', remarks }];
  },
};

type Work = () => void | Promise<void>;

function openBareGit(place: string, repository: string): Work {
  const [mirror, attempt] = [join(place, 'mirror.git'), join(place, 'attempt')];
  const [gitDir, tree] = [join(attempt, 'git'), join(attempt, 'work')];
  git(place, 'init', '--quiet', '--bare', mirror);
  return () => {
    git(mirror, 'fetch', '--quiet', '--prune', '--no-tags', repository, '+refs/heads/*:refs/heads/*');
    mkdirSync(tree, { recursive: true });
    git(attempt, 'init', '--quiet', '--bare', gitDir);
    writeFileSync(join(gitDir, 'objects/info/alternates'), `${mirror}/objects\n`);
    const base = git(mirror, 'rev-parse', 'main').trim();
    const at = [`--git-dir=${gitDir}`, `--work-tree=${tree}`];
    git(tree, ...at, 'read-tree', '--reset', '-u', base);
    changeFiles(tree);
    git(tree, ...at, 'add', '--all');
    const changed = git(tree, ...at, 'write-tree').trim();
    git(tree, ...at, 'diff-tree', '-r', '--patch', '--find-renames', '--binary', base, changed);
    execFileSync('rm', ['-rf', attempt]);
  };
}

async function openOrc(
  place: string,
  repository: string,
  defer: (undo: () => unknown) => void,
): Promise<Work> {
  const settings = openWorkspaces(
    { WORKSPACE_DIR: join(place, 'orc'), REPOSITORY_CACHE_BYTES: 1e9 },
    { PATH: process.env['PATH'] },
    'bench',
    () => undefined,
  );
  defer(() => settings.close());
  const { signal } = new AbortController();
  return async () => {
    const request = { repository: `file://${repository}`, ref: 'main', gitEnv: [], isRefOfCaller: false };
    const prepared = await prepareWorkspace(settings, request, signal);
    if (prepared.status !== 'ready') throw new Error(JSON.stringify(prepared));
    const { folder, capture, patch, remove } = prepared.workspace;
    changeFiles(folder);
    const captured = await capture([], signal);
    if (captured.status !== 'captured') throw new Error(JSON.stringify(captured));
    const written = await patch(captured, 1e9, signal);
    if (written.status !== 'written') throw new Error(JSON.stringify(written));
    await remove();
  };
}

function createRepository(place: string): string {
  const [bare, tree] = [join(place, 'bare.git'), join(place, 'tree')];
  for (let file = 0; file < FILES; file += 1) {
    const folder = join(tree, `folder-${Math.floor(file / FILES_PER_FOLDER)}`);
    if (file % FILES_PER_FOLDER === 0) mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `file-${file}.txt`), `This is file ${file}.\n`.repeat(50));
  }
  git(place, 'init', '--quiet', '--bare', '--initial-branch=main', bare);
  git(tree, 'init', '--quiet', '--initial-branch=main');
  git(tree, 'add', '--all');
  git(tree, '-c', 'user.name=bench', '-c', 'user.email=bench@localhost', 'commit', '--quiet', '-m', 'files');
  git(tree, 'push', '--quiet', bare, 'main');
  return bare;
}

function changeFiles(tree: string): void {
  for (let file = 0; file < CHANGED_FILES; file += 1) {
    writeFileSync(join(tree, `folder-${file}`, `file-${file * FILES_PER_FOLDER}.txt`), 'changed\n');
  }
}

/** Without what the user and the system have configured. */
function git(cwd: string, ...args: string[]): string {
  const env = { PATH: process.env['PATH'], HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1' };
  return execFileSync('git', args, { cwd, env, encoding: 'utf8', maxBuffer: 1e9 });
}
