import { withDeadline } from '../core/deadline.ts';
import { isTerminal, type Run, type RunEndReason, type RunOutcome } from '../core/run.ts';
import type { Store } from '../store/store.ts';

/** The outcome of a run as its callers see it. */
type PublicOutcome = Pick<RunOutcome, 'reason' | 'message' | 'exitCode' | 'httpStatus'>;

/** Instead of messages that name programs, folders and addresses of the workers' machines. */
const MESSAGES: Partial<Record<RunEndReason, string>> = {
  not_started: 'The run could not be started.',
  network_error: 'The request to the receiver failed.',
  agent_failed: 'The agent failed.',
  git_missing: 'The worker has no git.',
  repo_unavailable: 'The repository could not be reached.',
  ref_not_found: 'The repository has no such branch, tag or commit.',
  workspace_failed: 'The workspace could not be made or read.',
  push_rejected: 'The repository did not take the work of the agent.',
  worker_error: 'The worker could not execute the run.',
};

/**
 * An ended run as JSON text: as in any 202, with its outcome and, byte for byte, its result. What a program printed is not part
 * of it.
 *
 * @param endsAt deadline by `Date.now()`
 * @returns undefined for a run that has not ended
 */
export async function runRepresentation(
  store: Pick<Store, 'results'>,
  run: Run,
  endsAt: number,
): Promise<string | undefined> {
  if (!isTerminal(run.status) || run.outcome === undefined) return undefined;
  const result = await withDeadline(store.results.read(run), endsAt - Date.now());
  const { reason, message, exitCode, httpStatus } = run.outcome;
  const outcome: PublicOutcome = {
    reason,
    message: MESSAGES[reason] ?? message,
    ...(exitCode !== undefined && { exitCode }),
    ...(httpStatus !== undefined && { httpStatus }),
  };
  const text = JSON.stringify({ runId: run.id, status: run.status, outcome });
  return result === undefined ? text : `${text.slice(0, -1)},"result":${result}}`;
}
