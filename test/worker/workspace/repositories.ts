import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import { openWorkFolders } from '../../../src/worker/work-folders.ts';
import { openGit } from '../../../src/worker/workspace/git.ts';
import { openMirrors } from '../../../src/worker/workspace/mirrors.ts';
import { hasCommand } from '../../support/machine.ts';

if (!hasCommand('git')) throw new Error('These tests need git: install the package git of this system.');

/** Runs the machine's git, without what its user has configured. */
export function git(cwd: string, ...args: string[]): string {
  return execFileSync('git', args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 1e8,
    env: {
      PATH: process.env['PATH'],
      HOME: '/nonexistent',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_AUTHOR_NAME: 'Ada',
      GIT_AUTHOR_EMAIL: 'ada@example.com',
      GIT_COMMITTER_NAME: 'Ada',
      GIT_COMMITTER_EMAIL: 'ada@example.com',
    },
  }).trim();
}

export function writeFiles(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
}

export interface TestRepository {
  /** A bare repository, as a server has it. */
  bare: string;
  url: string;
  /** Adds a commit to all that there are, and makes it the end of a branch. */
  commit(files: Readonly<Record<string, string>>, branch?: string): string;
}

/** A repository with a first commit on `main`. */
export function createRepository(
  folder: string,
  files: Readonly<Record<string, string>> = { 'README.md': 'hello\n' },
  ...options: string[]
): TestRepository {
  const [bare, tree] = [join(folder, 'bare.git'), join(folder, 'tree')];
  mkdirSync(folder, { recursive: true });
  git(folder, 'init', '--quiet', '--bare', '--initial-branch=main', ...options, bare);
  git(folder, 'init', '--quiet', '--initial-branch=main', ...options, tree);
  const commit: TestRepository['commit'] = (added, branch = 'main') => {
    writeFiles(tree, added);
    git(tree, 'add', '--all', '--force');
    git(tree, 'commit', '--quiet', '--allow-empty', '-m', 'change');
    git(tree, 'push', '--quiet', '--force', bare, `HEAD:refs/heads/${branch}`);
    return git(tree, 'rev-parse', 'HEAD');
  };
  commit(files);
  return { bare, url: `file://${bare}`, commit };
}

/** What workspaces of a worker are made with. */
export function openTestWorkspaces(
  folder: string,
  { environment = {}, maxBytes = 1e9 }: { environment?: NodeJS.ProcessEnv; maxBytes?: number } = {},
) {
  const run = openGit({ PATH: process.env['PATH'], ...environment }, 'worker-7');
  const mirrors = openMirrors({ folder: join(folder, 'repositories'), maxBytes });
  const workFolders = openWorkFolders(() => undefined, join(folder, 'workspaces'));
  onTestFinished(() => workFolders.close());
  return { git: run, mirrors, workFolders };
}
