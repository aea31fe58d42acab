import { setTimeout } from 'node:timers/promises';
import type { Git, GitCall, GitResult } from './git.ts';
import { writeGitFolder } from './git-folder.ts';
import { type Failure, type FoundCommit, failureOf, type RepositoryAccess } from './mirrors.ts';

/** The trailer by which a commit and its run are found from each other. */
const RUN_TRAILER = 'Orc-Run-Id';

/** Where the branch is put that the repository has already. */
const EXISTING_REF = 'refs/orc/existing';

/** Of what a server says to a push, in characters. */
const MAX_SAID = 300;

const AUTHOR = { name: 'orc', email: 'orc@localhost' };

export interface PushRequest extends RepositoryAccess {
  /** The branch to push to, without problems. */
  branch: string;
  /** What is committed on top of the base. */
  tree: string;
  runId: string;
  /** The first line of the commit's message. */
  subject: string;
}

export type PushFailure = Failure<'push_rejected' | 'repo_unavailable' | 'workspace_failed' | 'git_missing'>;

export type PushResult = { status: 'pushed'; branch: string; commit: string } | PushFailure;

/** Between a push that failed and the second one, in milliseconds. */
const PAUSE_MS = 1000;

/**
 * Commits a tree on top of the base and pushes it: never over what others have pushed, and never to the branch of the base.
 * A push that fails is tried once more.
 *
 * Another attempt at the same run may have pushed before: its worker died, or the answer was lost. A branch whose last
 * commit names the run is the run's own. If it has the same tree, there is nothing to push; otherwise the commit comes on
 * top of it.
 *
 * @param gitDir the attempt's; its configuration is set back before
 */
export async function pushTree(
  git: Git,
  gitDir: string,
  base: FoundCommit,
  request: PushRequest,
  signal: AbortSignal,
): Promise<PushResult> {
  const { branch } = request;
  if (branch === base.branch) return rejected(`${branch} is the branch that the agent began with`);
  const run = (args: readonly string[], more: Partial<GitCall> = {}) =>
    git(args, { gitDir, signal, ...more });

  await writeGitFolder(gitDir, base.format);
  const pushed = await tryPush(run, base, request);
  if (pushed.status !== 'failed' || !pushed.mayPass) return pushed;
  await setTimeout(PAUSE_MS, undefined, { signal }).catch(() => undefined);
  return signal.aborted ? { status: 'interrupted' } : tryPush(run, base, request);
}

type PushTry = PushResult & { mayPass?: boolean };

/** @returns with `mayPass` when another try, which looks at the branch again, may go otherwise */
async function tryPush(run: Run, base: FoundCommit, request: PushRequest): Promise<PushTry> {
  const { branch, repository, gitEnv, tree } = request;
  const existing = await fetchOwn(run, request);
  if (existing.status !== 'found') return existing;
  if (existing.commit !== undefined && existing.tree === tree) {
    return { status: 'pushed', branch, commit: existing.commit };
  }
  const commit = await commitTree(run, base, request, existing.commit);
  if (commit.status !== 'done') return failureOf(commit, 'workspace_failed');
  const id = commit.stdout.toString().trim();
  const pushed = await run(
    [
      'push',
      '--porcelain',
      '--no-verify',
      '--no-follow-tags',
      // Nobody else has moved it since it was looked at, or made it.
      `--force-with-lease=refs/heads/${branch}:${existing.commit ?? ''}`,
      '--',
      repository,
      `${id}:refs/heads/${branch}`,
    ],
    { credentials: gitEnv },
  );
  if (pushed.status === 'done') return { status: 'pushed', branch, commit: id };
  const refusal = pushed.status === 'failed' ? refusalIn(pushed) : undefined;
  // The repository could be read a moment before, so that whatever is wrong now is wrong with writing.
  const failure = refusal === undefined ? failureOf(pushed, 'push_rejected') : rejected(refusal);
  return { ...failure, mayPass: true };
}

type Run = (args: readonly string[], more?: Partial<GitCall>) => Promise<GitResult>;

/** Looks for a commit of the same run at the end of the branch. */
async function fetchOwn(
  run: Run,
  { repository, branch, gitEnv, runId }: PushRequest,
): Promise<{ status: 'found'; commit?: string; tree?: string } | PushFailure> {
  const ref = `refs/heads/${branch}`;
  const listed = await run(['ls-remote', '--', repository, ref], { credentials: gitEnv });
  if (listed.status !== 'done') return failureOf(listed, 'repo_unavailable');
  // A pattern of ls-remote also stands for longer names that end with it.
  const isThere = listed.stdout
    .toString()
    .split('\n')
    .some((line) => line.endsWith(`\t${ref}`));
  if (!isThere) return { status: 'found' };
  const fetched = await run(
    ['fetch', '--quiet', '--no-tags', '--no-write-fetch-head', '--', repository, `+${ref}:${EXISTING_REF}`],
    { credentials: gitEnv },
  );
  if (fetched.status !== 'done') return failureOf(fetched, 'repo_unavailable');
  const format = `%H %T %(trailers:key=${RUN_TRAILER},valueonly,separator=%x2C)`;
  const shown = await run(['log', '-1', '--no-color', `--format=${format}`, EXISTING_REF]);
  if (shown.status !== 'done') return failureOf(shown, 'workspace_failed');
  const [commit = '', tree = '', trailer = ''] = shown.stdout.toString().trim().split(' ');
  if (trailer === runId) return { status: 'found', commit, tree };
  return rejected(`the branch ${branch} exists, and is not of this run`);
}

async function commitTree(
  run: Run,
  base: FoundCommit,
  { tree, runId, subject }: PushRequest,
  existing: string | undefined,
): Promise<GitResult> {
  const isOnBase =
    existing !== undefined &&
    (await run(['merge-base', '--is-ancestor', base.commit, existing])).status === 'done';
  const parents = existing === undefined || isOnBase ? [existing ?? base.commit] : [existing, base.commit];
  const date = new Date().toISOString();
  return run(['commit-tree', ...parents.flatMap((parent) => ['-p', parent]), '-F', '-', tree], {
    input: `${subject}\n\n${RUN_TRAILER}: ${runId}\n`,
    env: {
      GIT_AUTHOR_NAME: AUTHOR.name,
      GIT_AUTHOR_EMAIL: AUTHOR.email,
      GIT_AUTHOR_DATE: date,
      GIT_COMMITTER_NAME: AUTHOR.name,
      GIT_COMMITTER_EMAIL: AUTHOR.email,
      GIT_COMMITTER_DATE: date,
    },
  });
}

/** Why the repository refused, with what its server said last; undefined when it was not asked. */
function refusalIn({ stdout, stderr }: Extract<GitResult, { status: 'failed' }>): string | undefined {
  const [, reason] = /^!\t[^\t]*\t(.*)$/m.exec(stdout.toString()) ?? [];
  if (reason === undefined) return undefined;
  const said = [...stderr.matchAll(/^remote: *(\S.*?)\s*$/gm)].at(-1)?.[1];
  return said === undefined ? reason : `${reason}: ${said.slice(0, MAX_SAID)}`;
}

function rejected(detail: string): PushFailure {
  return { status: 'failed', reason: 'push_rejected', detail };
}
