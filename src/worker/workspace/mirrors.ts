import { createHash } from 'node:crypto';
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { type LockResult, takeLock } from '../../core/folder-lock.ts';
import { isCommitId } from '../../core/git-names.ts';
import { removeFolder } from '../remove-folder.ts';
import type { Git, GitCall, GitResult } from './git.ts';
import { linkPacks, type ObjectFormat, removeLeftovers, writeGitFolder } from './git-folder.ts';

/** A mirror that nobody has used for so long is removed, in milliseconds. */
const MAX_UNUSED_MS = 30 * 24 * 3_600_000;

/** A mirror with more packs than this, one for each fetch that brought something, is packed anew. */
const MAX_PACKS = 30;

/** Between two looks at a lock that another process holds, in milliseconds. */
const LOCK_PAUSE_MS = 100;

/** The git directory in a mirror's folder, beside the lock. */
const GIT_FOLDER = 'mirror.git';

/** A file whose time of change says when the last fetch that succeeded was begun. */
const FETCHED_FILE = 'fetched';

/** Where a ref that the mirror does not keep is put, until it is looked up. */
const WANTED_REF = 'refs/orc/wanted';

const MIRRORED_REFS = ['+refs/heads/*:refs/heads/*', '+refs/tags/*:refs/tags/*'];

export interface RepositoryAccess {
  /** Without problems, see `problemOfRepository`. */
  repository: string;
  /** Names of variables of the worker that only git gets, to reach the repository. */
  gitEnv: readonly string[];
}

export interface RefRequest extends RepositoryAccess {
  /** A ref's name or a commit's full id, see `isRefName`. Default: the repository's default branch. */
  ref?: string | undefined;
  /** Whether a caller chose the ref: then only branches, tags and commits that are part of them are found. */
  isRefOfCaller: boolean;
}

export interface FoundCommit {
  commit: string;
  tree: string;
  /** The name of the branch that the ref stands for. */
  branch?: string;
  format: ObjectFormat;
}

/** Why there is no checkout. */
export type WorkspaceFailure = 'git_missing' | 'repo_unavailable' | 'ref_not_found' | 'workspace_failed';

export type Failure<Reason extends string = WorkspaceFailure> =
  | { status: 'failed'; reason: Reason; detail: string }
  | { status: 'interrupted' };

/** The worker's copies of repositories. */
export interface Mirrors {
  /**
   * Brings the repository's mirror up to date, finds a commit in it, and makes `gitDir` a git directory with all its
   * objects. A mirror that is broken is made anew, once.
   *
   * @param git of the attempt
   */
  provide(
    git: Git,
    request: RefRequest,
    gitDir: string,
    signal: AbortSignal,
  ): Promise<({ status: 'provided' } & FoundCommit) | Failure>;
  /** Removes a repository's mirror, because its objects turned out to be broken. */
  discard(repository: string, signal: AbortSignal): Promise<void>;
}

export interface MirrorOptions {
  /** Holds a folder for each repository. Other processes of this user may use it at the same time. */
  folder: string;
  /** Bytes of all mirrors together; the least recently used ones are removed. One that is larger is kept until another one is used. */
  maxBytes: number;
}

/**
 * In a repository of somebody else, the configuration could name programs that git starts, with the secrets of git.
 *
 * @throws unless the folder belongs to this user, and nobody else may write to it
 */
async function checkOwn(folder: string): Promise<void> {
  const found = await lstat(folder);
  const isOwn = found.isDirectory() && (!process.geteuid || found.uid === process.geteuid());
  if (isOwn && (found.mode & 0o022) === 0) return;
  throw new Error(
    `other users can write to ${folder}; remove it, and set WORKSPACE_DIR to a folder of the worker's own`,
  );
}

/**
 * One mirror per repository, fetched by one process of this machine at a time. Who waits for a fetch that began after its
 * own request makes none.
 */
export function openMirrors({ folder, maxBytes }: MirrorOptions): Mirrors {
  const turns = new Turns();
  const folderOf = (repository: string) =>
    join(folder, createHash('sha256').update(repository).digest('hex').slice(0, 20));

  const exclusively = async <T>(
    repository: string,
    signal: AbortSignal,
    work: (place: string) => Promise<T>,
  ): Promise<T | { status: 'interrupted' }> => {
    const place = folderOf(repository);
    return turns.take(place, signal, async () => {
      await mkdir(place, { recursive: true, mode: 0o700 });
      for (const own of [folder, place]) await checkOwn(own);
      const release = await waitForLock(place, signal);
      if (release === undefined) return { status: 'interrupted' };
      try {
        return await work(place);
      } finally {
        await release();
      }
    });
  };

  return {
    provide: async (git, request, gitDir, signal) => {
      const requestedAt = Date.now();
      const provided = await exclusively(request.repository, signal, async (place) => {
        const mirror = new Mirror(git, place, request, signal);
        const found = await mirror.find(request, requestedAt);
        if (found.status !== 'found') return found;
        await writeGitFolder(gitDir, found.format);
        await linkPacks(mirror.gitDir, gitDir);
        return { ...found, status: 'provided' as const };
      });
      // What cannot be removed now is removed after another attempt.
      await trim(folder, folderOf(request.repository), maxBytes).catch(() => undefined);
      return provided;
    },
    discard: async (repository, signal) => {
      await exclusively(repository, signal, (place) => removeFolder(join(place, GIT_FOLDER)));
    },
  };
}

/** A mirror while this process has exclusive use of it. */
class Mirror {
  readonly gitDir: string;
  readonly #git: Git;
  readonly #place: string;
  readonly #access: RepositoryAccess;
  readonly #signal: AbortSignal;

  constructor(git: Git, place: string, access: RepositoryAccess, signal: AbortSignal) {
    this.gitDir = join(place, GIT_FOLDER);
    this.#git = git;
    this.#place = place;
    this.#access = access;
    this.#signal = signal;
  }

  async find(
    request: RefRequest,
    requestedAt: number,
  ): Promise<({ status: 'found' } & FoundCommit) | Failure> {
    let remote: RemoteFacts | undefined;
    const existing = await this.#format();
    if (existing === undefined || request.ref === undefined) {
      const asked = await this.#askRemote();
      if (asked.status !== 'answered') return asked;
      remote = asked;
    }
    const ref = request.ref ?? remote?.defaultBranch;
    if (ref === undefined) return notFound('the repository has no default branch; name a ref');
    const format = existing ?? remote?.format ?? 'sha1';
    if (existing !== undefined && isCommitId(ref)) {
      const known = await this.#lookUp(ref, request, format);
      if (known.status !== 'failed' || known.reason !== 'ref_not_found') return known;
    }
    const fetched = await this.#fetch(ref, request, format, requestedAt);
    return fetched ?? this.#lookUp(ref, request, format);
  }

  /** How the mirror names its objects; undefined when there is no mirror. */
  async #format(): Promise<ObjectFormat | undefined> {
    const config = await readFile(join(this.gitDir, 'config'), 'utf8').catch(() => undefined);
    if (config === undefined) return undefined;
    return /^\s*objectformat\s*=\s*sha256\s*$/m.test(config) ? 'sha256' : 'sha1';
  }

  async #askRemote(): Promise<({ status: 'answered' } & RemoteFacts) | Failure> {
    const { repository } = this.#access;
    const result = await this.#run(['ls-remote', '--symref', '--', repository, 'HEAD', 'refs/heads/*']);
    if (result.status !== 'done') return failureOf(result, 'repo_unavailable');
    const text = result.stdout.toString();
    const [, defaultBranch] = /^ref: refs\/heads\/(.*)\tHEAD$/m.exec(text) ?? [];
    const isLong = /^[0-9a-f]{64}\t/m.test(text);
    return {
      status: 'answered',
      format: isLong ? 'sha256' : 'sha1',
      ...(defaultBranch !== undefined && { defaultBranch }),
    };
  }

  /** @returns why there is nothing to look up */
  async #fetch(
    ref: string,
    request: RefRequest,
    format: ObjectFormat,
    requestedAt: number,
  ): Promise<Failure | undefined> {
    const isExtra = isFullRef(ref) && !/^refs\/(heads|tags)\//.test(ref);
    if (isExtra && request.isRefOfCaller) return notFound(`callers cannot choose ${ref}`);
    const marker = join(this.#place, FETCHED_FILE);
    const fetchedAt = await stat(marker).then(
      ({ mtimeMs }) => mtimeMs,
      () => 0,
    );
    const isRecent = fetchedAt >= requestedAt && (await this.#format()) !== undefined;
    if (!isRecent) {
      const startedAt = new Date();
      const failure = await this.#fetchRefs(MIRRORED_REFS, format);
      if (failure !== undefined) return failure;
      await writeFile(marker, '');
      await utimes(marker, startedAt, startedAt);
      await this.#packAnew();
    }
    if (isExtra) return this.#fetchWanted(ref, format);
    if (isCommitId(ref) && !request.isRefOfCaller) {
      const known = await this.#lookUp(ref, request, format);
      // A server may give a commit that no branch or tag has; if it does not, the commit is not found.
      if (known.status !== 'found') await this.#fetchWanted(ref, format);
    }
    return undefined;
  }

  /** Fetches; a mirror that does not take what the repository gives is made anew. */
  async #fetchRefs(refs: readonly string[], format: ObjectFormat): Promise<Failure | undefined> {
    await writeGitFolder(this.gitDir, format);
    await removeLeftovers(this.gitDir);
    const result = await this.#run(fetchOf(this.#access.repository, refs), this.gitDir);
    if (result.status === 'done') return undefined;
    const failure = failureOf(result, 'repo_unavailable');
    if (failure.status === 'interrupted' || failure.reason === 'git_missing') return failure;
    const remote = await this.#askRemote();
    if (remote.status !== 'answered') return failure;

    const fresh = `${this.gitDir}.new`;
    await removeFolder(fresh);
    await writeGitFolder(fresh, remote.format);
    const again = await this.#run(fetchOf(this.#access.repository, refs), fresh);
    if (again.status !== 'done') {
      await removeFolder(fresh);
      return failureOf(again, 'repo_unavailable');
    }
    await removeFolder(this.gitDir);
    await rename(fresh, this.gitDir);
    return undefined;
  }

  async #fetchWanted(ref: string, format: ObjectFormat): Promise<Failure | undefined> {
    await writeGitFolder(this.gitDir, format);
    const refs = [`+${ref}:${WANTED_REF}`];
    const result = await this.#run(fetchOf(this.#access.repository, refs), this.gitDir);
    if (result.status === 'done') return undefined;
    const isUnknown =
      result.status === 'failed' &&
      /couldn't find remote ref|not our ref|unadvertised object/.test(result.stderr);
    return isUnknown ? notFound(`the repository has no ${ref}`) : failureOf(result, 'repo_unavailable');
  }

  async #lookUp(
    ref: string,
    { isRefOfCaller }: RefRequest,
    format: ObjectFormat,
  ): Promise<({ status: 'found' } & FoundCommit) | Failure> {
    const names = candidatesFor(ref);
    const input = names.flatMap((name) => [`${name}^{commit}`, `${name}^{tree}`, '']).join('\n');
    const result = await this.#git(['cat-file', '--batch-check=%(objectname)'], {
      gitDir: this.gitDir,
      signal: this.#signal,
      input: `${input}\n`,
    });
    if (result.status !== 'done') return failureOf(result, 'workspace_failed');
    const answers = result.stdout.toString().split('\n');
    const at = names.findIndex((_, index) => isCommitId(answers[index * 3] ?? ''));
    const [commit = '', tree = ''] = answers.slice(at * 3);
    const isFound = at !== -1 && isCommitId(tree);
    if (!isFound || (isRefOfCaller && isCommitId(ref) && !(await this.#isReachable(commit)))) {
      return notFound(`the repository has no branch, tag or commit ${ref}`);
    }
    const [, branch] = /^refs\/heads\/(.+)$/.exec(names[at] ?? '') ?? [];
    return { status: 'found', commit, tree, format, ...(branch !== undefined && { branch }) };
  }

  async #isReachable(commit: string): Promise<boolean> {
    const args = ['for-each-ref', '--count=1', `--contains=${commit}`, 'refs/heads', 'refs/tags'];
    const result = await this.#git(args, { gitDir: this.gitDir, signal: this.#signal });
    return result.status === 'done' && result.stdout.length > 0;
  }

  /** Each fetch adds a pack, and what branches no longer have stays in one. Attempts that go on have packs of their own. */
  async #packAnew(): Promise<void> {
    const packs = await readdir(join(this.gitDir, 'objects', 'pack'));
    if (packs.filter((name) => name.endsWith('.pack')).length <= MAX_PACKS) return;
    const args = ['-c', 'pack.threads=1', '-c', 'pack.windowMemory=128m', 'repack', '-a', '-d', '-q'];
    await this.#git(args, { gitDir: this.gitDir, signal: this.#signal });
  }

  #run(args: readonly string[], gitDir?: string): Promise<GitResult> {
    const call: GitCall = {
      signal: this.#signal,
      credentials: this.#access.gitEnv,
      ...(gitDir !== undefined && { gitDir }),
    };
    return this.#git(args, call);
  }
}

interface RemoteFacts {
  format: ObjectFormat;
  defaultBranch?: string;
}

function fetchOf(repository: string, refs: readonly string[]): string[] {
  return ['fetch', '--quiet', '--prune', '--no-tags', '--no-write-fetch-head', '--', repository, ...refs];
}

function isFullRef(ref: string): boolean {
  return ref.startsWith('refs/');
}

/** What a ref may stand for, the first one that there is counts. */
function candidatesFor(ref: string): string[] {
  if (isCommitId(ref)) return [ref];
  if (isFullRef(ref)) return [/^refs\/(heads|tags)\//.test(ref) ? ref : WANTED_REF];
  return [`refs/heads/${ref}`, `refs/tags/${ref}`];
}

function notFound(detail: string): Failure {
  return { status: 'failed', reason: 'ref_not_found', detail };
}

/** A git command that did not do what it should, as the reason that it is for a run. */
export function failureOf<Reason extends string>(
  result: Exclude<GitResult, { status: 'done' }>,
  reason: Reason,
): Failure<Reason | 'git_missing'> {
  if (result.status === 'interrupted') return result;
  if (result.status === 'missing') {
    const detail = 'git is not on the PATH of the worker; install the package git';
    return { status: 'failed', reason: 'git_missing', detail };
  }
  const detail = result.status === 'failed' ? result.detail : 'git printed more than expected';
  return { status: 'failed', reason, detail };
}

/** @returns what releases it, or undefined when the signal aborts before */
async function waitForLock(place: string, signal: AbortSignal): Promise<(() => Promise<void>) | undefined> {
  while (!signal.aborted) {
    const lock = await tryLock(place);
    if (lock.status === 'taken') return lock.release;
    await setTimeout(LOCK_PAUSE_MS, undefined, { signal }).catch(() => undefined);
  }
  return undefined;
}

/** The path of a socket has at most about 100 bytes, that of the folder may be longer: a link leads there. */
async function tryLock(place: string): Promise<LockResult> {
  const folder = await mkdtemp(join(tmpdir(), 'orc-lock-'));
  try {
    const via = join(folder, 'to');
    await symlink(place, via);
    return await takeLock(place, via, () => ({ pid: process.pid }));
  } finally {
    await removeFolder(folder);
  }
}

/** Lets this process do one thing at a time at each place, in the order of requests. */
class Turns {
  readonly #last = new Map<string, Promise<void>>();

  async take<T>(
    place: string,
    signal: AbortSignal,
    work: () => Promise<T | { status: 'interrupted' }>,
  ): Promise<T | { status: 'interrupted' }> {
    const before = this.#last.get(place);
    let done = () => {};
    const gate = new Promise<void>((resolve) => {
      done = resolve;
    });
    const last = (before ?? Promise.resolve()).then(() => gate);
    this.#last.set(place, last);
    void last.then(() => {
      if (this.#last.get(place) === last) this.#last.delete(place);
    });
    let abort = () => {};
    const aborted = new Promise<void>((resolve) => {
      abort = resolve;
    });
    signal.addEventListener('abort', abort);
    try {
      if (!signal.aborted) await Promise.race([before, aborted]);
      return signal.aborted ? { status: 'interrupted' } : await work();
    } finally {
      signal.removeEventListener('abort', abort);
      done();
    }
  }
}

/** Removes mirrors that were not used for long, and the least recently used ones beyond the bytes that all may take. */
async function trim(folder: string, used: string, maxBytes: number): Promise<void> {
  const mirrors: { place: string; usedAt: number; bytes: number }[] = [];
  for (const name of await readdir(folder).catch(() => [])) {
    const place = join(folder, name);
    // The lock comes and goes in it, so that its time of change is that of its last use.
    const stats = await lstat(place).catch(() => undefined);
    if (!stats?.isDirectory()) continue;
    mirrors.push({ place, usedAt: stats.mtimeMs, bytes: await packBytes(join(place, GIT_FOLDER)) });
  }
  mirrors.sort((left, right) => right.usedAt - left.usedAt);
  let bytes = mirrors.find(({ place }) => place === used)?.bytes ?? 0;
  for (const each of mirrors) {
    if (each.place === used || each.bytes === 0) continue;
    bytes += each.bytes;
    const isOld = Date.now() - each.usedAt > MAX_UNUSED_MS;
    if (!isOld && bytes <= maxBytes) continue;
    const lock = await tryLock(each.place);
    if (lock.status === 'held') continue;
    await removeFolder(join(each.place, GIT_FOLDER)).finally(lock.release);
    bytes -= each.bytes;
  }
}

/** The size of a mirror: nearly all of it are its packs. */
async function packBytes(gitDir: string): Promise<number> {
  const packs = join(gitDir, 'objects', 'pack');
  const names = await readdir(packs).catch(() => []);
  const sizes = names.map((name) =>
    lstat(join(packs, name)).then(
      ({ size }) => size,
      () => 0,
    ),
  );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}
