import type { AgentAction } from '../../core/actions/agent.ts';
import { valueAt } from '../../core/json-pointer.ts';
import { quoted } from '../../core/quoted.ts';
import { branchOf, isRefName } from '../../core/ref-name.ts';
import type { RunAttempt, RunOutcome } from '../../core/run.ts';
import type { AttemptArtifacts } from '../attempt-artifacts.ts';
import type { OutputLog } from '../output-log.ts';
import type { RunMark } from '../run-processes.ts';
import { gitOfAttempt } from './git.ts';
import type { Failure, RefRequest } from './mirrors.ts';
import { type Captured, prepareWorkspace, type Workspace, type WorkspaceSettings } from './workspace.ts';

/** The artifact that holds what an attempt has changed. */
const PATCH_NAME = 'changes.patch';

/** Longest ref of a caller that a message repeats, in characters. */
const SHOWN_REF = 100;

/** Failures that another attempt would meet again. */
const FINAL_REASONS: readonly string[] = ['ref_not_found', 'push_rejected', 'result_too_large'];

/** What an agent's action says about its repository. */
export type RepositoryAction = Pick<AgentAction, 'ref' | 'refFrom' | 'protect' | 'push' | 'gitEnv'> & {
  repo: string;
};

export interface RepositoryAttempt {
  action: RepositoryAction;
  run: Pick<RunAttempt, 'id' | 'automation' | 'payload'>;
  log: Pick<OutputLog, 'note'>;
  artifacts: AttemptArtifacts;
  /** By which the guard finds git. */
  mark: RunMark;
  signal: AbortSignal;
}

/** What an attempt has left in its repository. */
export interface RepositoryReport {
  isChanged: boolean;
  /** What was pushed, and where to. */
  branch?: string;
  commit?: string;
}

/** A step that failed is how the attempt ends; `interrupted` when its signal has aborted. */
export type Step<T> =
  | ({ status: 'done' } & T)
  | { status: 'failed'; outcome: RunOutcome }
  | { status: 'interrupted' };

/** The repository that an attempt works on, from its checkout to what is pushed. */
export interface RepositoryWork {
  /** The attempt's working directory. */
  folder: string;
  /** Restores the protected paths and records what is judged. Nobody may be working in the folder. */
  beforeCheck(): Promise<Step<object>>;
  /**
   * Keeps the changes as an artifact and, of an attempt that succeeded, pushes them: what was recorded before the last
   * check or, without one, what is there now.
   */
  conclude(hasSucceeded: boolean): Promise<Step<RepositoryReport>>;
  /** Removes the checkout. */
  remove(): Promise<void>;
}

/** Makes the checkout that an attempt works in. */
export async function startRepositoryWork(
  settings: WorkspaceSettings,
  attempt: RepositoryAttempt,
): Promise<Step<{ work: RepositoryWork }>> {
  const { action, run, log, mark, signal } = attempt;
  const request = requestOf(action, run.payload);
  if ('status' in request) return failedStep(request);
  const prepared = await prepareWorkspace(
    { ...settings, git: gitOfAttempt(settings.git, mark) },
    request,
    signal,
  );
  if (prepared.status !== 'ready') return failedStep(prepared);
  const { workspace } = prepared;
  const { branch, commit } = workspace.base;
  log.note(`The workspace holds commit ${commit}${branch === undefined ? '' : ` of ${branch}`}.`);
  return { status: 'done', work: openWork(attempt, workspace) };
}

/** Whether another attempt may end otherwise. */
export function mayBeRepeated({ reason }: Pick<RunOutcome, 'reason'>): boolean {
  return !FINAL_REASONS.includes(reason);
}

function openWork(attempt: RepositoryAttempt, workspace: Workspace): RepositoryWork {
  const { action, signal } = attempt;
  let captured: Captured | undefined;
  const capture = async (protect: readonly string[]): Promise<Step<object>> => {
    const result = await workspace.capture(protect, signal);
    if (result.status !== 'captured') return failedStep(result);
    captured = result;
    return { status: 'done' };
  };
  return {
    folder: workspace.folder,
    beforeCheck: () => capture(action.protect),
    conclude: async (hasSucceeded) => {
      const step = captured === undefined ? await capture(action.protect) : undefined;
      if (captured === undefined) return step?.status === 'failed' ? step : { status: 'interrupted' };
      return keep(attempt, workspace, captured, hasSucceeded);
    },
    remove: workspace.remove,
  };
}

async function keep(
  attempt: RepositoryAttempt,
  workspace: Workspace,
  captured: Captured,
  hasSucceeded: boolean,
): Promise<Step<RepositoryReport>> {
  const { action, run, log, artifacts, signal } = attempt;
  if (!captured.isChanged) {
    log.note(`The agent changed nothing${action.push === undefined ? '' : '; nothing is pushed'}.`);
    return { status: 'done', isChanged: false };
  }
  const patch = await workspace.patch(captured, artifacts.limitBytes, signal);
  if (patch.status === 'failed' || patch.status === 'interrupted') return failedStep(patch);
  if (patch.status === 'written') await artifacts.addFile(PATCH_NAME, patch.path);
  const isKept = artifacts.list().artifacts.some(({ name }) => name === PATCH_NAME);
  if (!isKept) log.note(`${PATCH_NAME} is not kept: it is larger than ARTIFACT_LIMIT_BYTES.`);
  if (!hasSucceeded) return { status: 'done', isChanged: true };
  if (action.push !== undefined) {
    const branch = branchOf(action.push, run);
    const subject = `${run.automation}: changes of an agent`;
    const { repo: repository, gitEnv } = action;
    const request = { repository, gitEnv, branch, tree: captured.tree, runId: run.id, subject };
    const pushed = await workspace.push(request, signal);
    if (pushed.status !== 'pushed') return failedStep(pushed);
    log.note(`Pushed commit ${pushed.commit} to ${pushed.branch}.`);
    return { status: 'done', isChanged: true, branch: pushed.branch, commit: pushed.commit };
  }
  if (isKept) return { status: 'done', isChanged: true };
  const message = `What the agent changed is larger than ARTIFACT_LIMIT_BYTES (${artifacts.limitBytes} bytes), and is pushed nowhere; raise it, or set a branch to push to.`;
  return { status: 'failed', outcome: { status: 'failed', reason: 'result_too_large', message } };
}

/** The commit that is asked for. A payload without a ref leaves the choice to the automation. */
function requestOf(
  { repo, ref, refFrom, gitEnv }: RepositoryAction,
  payload: Buffer,
): RefRequest | Extract<Failure, { status: 'failed' }> {
  const chosen = refFrom === undefined ? undefined : valueAt(JSON.parse(payload.toString()), refFrom);
  if (chosen === undefined) return { repository: repo, gitEnv, ref, isRefOfCaller: false };
  if (typeof chosen === 'string' && isRefName(chosen)) {
    return { repository: repo, gitEnv, ref: chosen, isRefOfCaller: true };
  }
  const what = typeof chosen === 'string' ? quoted(chosen, SHOWN_REF) : `a ${typeof chosen}`;
  const detail = `${refFrom} of the payload is ${what}, which is not the name of a branch, a tag or a commit`;
  return { status: 'failed', reason: 'ref_not_found', detail };
}

/** The first words of each reason's message. */
const MESSAGES = {
  git_missing: 'The repository cannot be checked out',
  repo_unavailable: 'The repository cannot be reached',
  ref_not_found: 'There is nothing to check out',
  workspace_failed: 'The workspace failed',
  push_rejected: 'The changes could not be pushed',
} as const;

function failedStep(
  failure: Failure<keyof typeof MESSAGES>,
): Extract<Step<object>, { status: 'failed' | 'interrupted' }> {
  if (failure.status === 'interrupted') return failure;
  const { reason, detail } = failure;
  const message = `${MESSAGES[reason]}: ${detail.replace(/\.$/, '')}.`;
  return { status: 'failed', outcome: { status: 'failed', reason, message } };
}
