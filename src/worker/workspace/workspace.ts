import { copyFile, lstat, mkdir, rename, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isRefName } from '../../core/ref-name.ts';
import { removeFolder } from '../remove-folder.ts';
import type { WorkFolders } from '../work-folders.ts';
import type { Git, GitCall, GitResult } from './git.ts';
import { writeWorkspaceGit } from './git-folder.ts';
import { type Failure, type FoundCommit, failureOf, type Mirrors, type RefRequest } from './mirrors.ts';
import { withoutNestedRepositories } from './nested-repositories.ts';
import { type PushRequest, type PushResult, pushTree } from './push.ts';
import { makeRealParents, removeLinkAbove } from './real-folders.ts';

/** What an attempt's folder holds. */
const WORK_TREE = 'work';
const GIT_FOLDER = 'git';
const NESTED_FOLDER = 'nested';
const RESTORED_FOLDER = 'restored';

const PATCH_FILE = 'changes.patch';

/** Reads trees only: neither files nor attributes of the workspace. */
const DIFF = [
  ...['diff-tree', '-r', '--patch', '--find-renames', '--binary', '--full-index', '--no-color'],
  ...['--no-ext-diff', '--no-textconv', '--src-prefix=a/', '--dst-prefix=b/', '--ignore-submodules=none'],
];

/** The kind of an index entry that stands for a submodule. */
const SUBMODULE = /^160000 \S+ \d\t/;

export interface WorkspaceSettings {
  git: Git;
  mirrors: Mirrors;
  /** On the file system of the mirrors. */
  workFolders: WorkFolders;
}

/** A tree that was recorded of a workspace. */
export interface Captured {
  status: 'captured';
  tree: string;
  /** Whether it differs from the base. */
  isChanged: boolean;
}

/** A checkout of a repository for one attempt. */
export interface Workspace {
  /** Where the agent works. What is in it can be anything from then on; the worker trusts none of it. */
  folder: string;
  base: FoundCommit;
  /**
   * Restores paths from the base, then records what the workspace holds: all files but ignored ones. Nobody may be working
   * in it.
   *
   * @param protectedPaths see {@link restoreProtected}
   */
  capture(protectedPaths: readonly string[], signal: AbortSignal): Promise<Captured | Failure>;
  /**
   * What a tree has changed of the base, for `git apply`: with binary files, names of any kind, and renames found.
   *
   * @param maxBytes of the patch
   */
  patch(
    captured: Captured,
    maxBytes: number,
    signal: AbortSignal,
  ): Promise<{ status: 'written'; path: string; bytes: number } | { status: 'too_large' } | Failure>;
  /** Commits a tree and pushes it, see {@link pushTree}. */
  push(request: PushRequest, signal: AbortSignal): Promise<PushResult>;
  /** Removes it. Nobody may be working in it. */
  remove(): Promise<void>;
}

/**
 * Makes a checkout of a commit in a folder of its own. Its git directory lies beside it, so that nothing that happens in
 * the checkout says how the worker's git behaves; the `.git` in it belongs to whoever works there, and is never read.
 */
export async function prepareWorkspace(
  settings: WorkspaceSettings,
  request: RefRequest,
  signal: AbortSignal,
): Promise<{ status: 'ready'; workspace: Workspace } | Failure> {
  if (request.ref !== undefined && !isRefName(request.ref)) {
    return { status: 'failed', reason: 'ref_not_found', detail: 'it is not the name of a ref' };
  }
  const first = await tryToPrepare(settings, request, signal);
  if (first.status !== 'failed' || first.reason !== 'workspace_failed') return first;
  // The mirror may lack objects, which git does not notice as long as it only fetches.
  await settings.mirrors.discard(request.repository, signal);
  return tryToPrepare(settings, request, signal);
}

async function tryToPrepare(
  settings: WorkspaceSettings,
  request: RefRequest,
  signal: AbortSignal,
): Promise<{ status: 'ready'; workspace: Workspace } | Failure> {
  let scratch: string | undefined;
  let prepared: { status: 'ready'; workspace: Workspace } | Failure | undefined;
  try {
    scratch = await settings.workFolders.create();
    const gitDir = join(scratch, GIT_FOLDER);
    const found = await settings.mirrors.provide(settings.git, request, gitDir, signal);
    prepared = found.status === 'provided' ? await checkOut(settings.git, scratch, found, signal) : found;
  } catch (error) {
    prepared = { status: 'failed', reason: 'workspace_failed', detail: (error as Error).message };
  } finally {
    if (scratch !== undefined && prepared?.status !== 'ready') await removeFolder(scratch);
  }
  return prepared;
}

async function checkOut(
  git: Git,
  scratch: string,
  base: FoundCommit,
  signal: AbortSignal,
): Promise<{ status: 'ready'; workspace: Workspace } | Failure> {
  const workTree = join(scratch, WORK_TREE);
  const gitDir = join(scratch, GIT_FOLDER);
  await mkdir(workTree);
  const result = await git(['read-tree', '--reset', '-u', base.commit], { gitDir, workTree, signal });
  if (result.status !== 'done') return failureOf(result, 'workspace_failed');
  await writeWorkspaceGit(workTree, gitDir, base.format, base);
  await copyIndex(join(gitDir, 'index'), join(workTree, '.git', 'index'));
  await copyIndex(join(gitDir, 'index'), join(gitDir, 'base-index'));
  return { status: 'ready', workspace: openWorkspace(git, scratch, base) };
}

function openWorkspace(git: Git, scratch: string, base: FoundCommit): Workspace {
  const folder = join(scratch, WORK_TREE);
  const gitDir = join(scratch, GIT_FOLDER);
  const run = (args: readonly string[], signal: AbortSignal, more: Partial<GitCall> = {}) =>
    git(args, { gitDir, signal, ...more });

  const capture = async (protectedPaths: readonly string[], signal: AbortSignal) => {
    const found = await lstat(folder).catch(() => undefined);
    if (!found?.isDirectory()) return failed('the folder of the workspace is gone');
    await copyIndex(join(gitDir, 'base-index'), join(gitDir, 'index'));
    const places = { folder, aside: join(scratch, RESTORED_FOLDER) };
    const restored = await restoreProtected({ run, ...places, base, paths: protectedPaths, signal });
    if (restored !== undefined) return restored;
    const find = () => nestedRepositories(run, folder, signal);
    const added = await withoutNestedRepositories(folder, join(scratch, NESTED_FOLDER), find, () =>
      run(['add', '--all'], signal, { workTree: folder }),
    );
    if (added.status !== 'done') return failureOf(added, 'workspace_failed');
    const written = await run(['write-tree'], signal);
    if (written.status !== 'done') return failureOf(written, 'workspace_failed');
    const tree = written.stdout.toString().trim();
    return { status: 'captured' as const, tree, isChanged: tree !== base.tree };
  };

  return {
    folder,
    base,
    capture: (protectedPaths, signal) =>
      capture(protectedPaths, signal).catch((error: Error) => failed(error.message)),
    patch: async ({ tree }, maxBytes, signal) => {
      const result = await run([...DIFF, base.tree, tree], signal, { maxBytes });
      if (result.status === 'too_large') return result;
      if (result.status !== 'done') return failureOf(result, 'workspace_failed');
      const path = join(scratch, PATCH_FILE);
      await writeFile(path, result.stdout, { mode: 0o600 });
      return { status: 'written', path, bytes: result.stdout.length };
    },
    push: (request, signal) => pushTree(git, gitDir, base, request, signal),
    remove: () => removeFolder(scratch),
  };
}

type Run = (args: readonly string[], signal: AbortSignal, more?: Partial<GitCall>) => Promise<GitResult>;

/** Where git would see a repository: in places of submodules, and in folders that are new or in place of a file. */
async function nestedRepositories(run: Run, workTree: string, signal: AbortSignal): Promise<string[]> {
  const [known, others] = await Promise.all([
    run(['ls-files', '--stage', '-z'], signal, { workTree }),
    run(['ls-files', '--others', '--killed', '--exclude-standard', '-z'], signal, { workTree }),
  ]);
  const names = [
    ...namesIn(known)
      .filter((entry) => SUBMODULE.test(entry))
      .map((entry) => entry.slice(entry.indexOf('\t') + 1)),
    ...namesIn(others).filter((name) => name.endsWith('/')),
  ];
  // It would stay in its place.
  if (names.some((name) => name.includes('\ufffd'))) {
    throw new Error('there is a git repository in a folder whose name is not UTF-8');
  }
  return names;
}

/** @throws when git could not tell */
function namesIn(result: GitResult): string[] {
  if (result.status === 'done') return result.stdout.toString().split('\0').slice(0, -1);
  throw new Error(result.status === 'failed' ? result.detail : `git: ${result.status}`);
}

/**
 * Makes each path what it is in the base: what was added there is removed, also what is ignored; what is missing is
 * there again; links in place of folders above it are replaced.
 *
 * @returns why it could not
 */
async function restoreProtected({
  run,
  folder,
  aside,
  base,
  paths,
  signal,
}: {
  run: Run;
  folder: string;
  /** An empty folder on the same file system; it need not exist. */
  aside: string;
  base: FoundCommit;
  paths: readonly string[];
  signal: AbortSignal;
}): Promise<Failure | undefined> {
  if (paths.length === 0) return undefined;
  const listed = await run(
    ['ls-tree', '-r', '-z', '--name-only', '--full-tree', base.commit, '--', ...paths],
    signal,
  );
  if (listed.status !== 'done') return failureOf(listed, 'workspace_failed');
  // Attributes of the workspace, which may say how lines end, have no say in an empty folder: those of the base have.
  await removeFolder(aside);
  await mkdir(aside);
  const checkedOut = await run(['checkout-index', '--force', '-z', '--stdin'], signal, {
    workTree: aside,
    input: listed.stdout,
  });
  if (checkedOut.status !== 'done') return failureOf(checkedOut, 'workspace_failed');
  for (const path of withoutInner(paths.map((each) => each.replace(/\/+$/, '')))) {
    const isInBase = (await lstat(join(aside, path)).catch(() => undefined)) !== undefined;
    if (isInBase) await makeRealParents(folder, path);
    else await removeLinkAbove(folder, path);
    await removeFolder(join(folder, path));
    if (isInBase) await rename(join(aside, path), join(folder, path));
  }
  return undefined;
}

/** The paths that lie in no other one of them. */
function withoutInner(paths: readonly string[]): string[] {
  return [...new Set(paths)].filter((path) => !paths.some((other) => path.startsWith(`${other}/`)));
}

function failed(detail: string): Failure {
  return { status: 'failed', reason: 'workspace_failed', detail };
}

/**
 * Copies an index with its time of change: git compares the contents of files that are as new as their index, and takes
 * older ones for what the index says if nothing about them has changed.
 */
async function copyIndex(from: string, to: string): Promise<void> {
  const { atimeMs, mtimeMs } = await stat(from);
  await copyFile(from, to);
  await utimes(to, atimeMs / 1000, mtimeMs / 1000);
}
