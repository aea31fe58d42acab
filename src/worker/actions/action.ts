import type { Config } from '../../config.ts';
import type { AttemptResult, RunAttempt } from '../../core/run.ts';
import type { AttemptArtifacts } from '../attempt-artifacts.ts';
import type { Guard } from '../guard/guard.ts';
import type { Lease } from '../lease.ts';
import type { OutputLog } from '../output-log.ts';
import type { FoundResult } from '../run-result.ts';
import type { WorkFolders } from '../work-folders.ts';
import type { WorkspaceSettings } from '../workspace/workspace.ts';
import type { Spending } from './agent/spending.ts';

/** Why the signal of an action aborts when the attempt's time is over. */
export const TIMED_OUT = 'timed out';

/** What the actions of a worker have in common. */
export interface ActionSettings {
  config: Pick<Config, 'DELIVERY_DENY' | 'version'>;
  /** The worker's own, of which commands get a part. */
  environment: Readonly<NodeJS.ProcessEnv>;
  workFolders: WorkFolders;
  /** What agents cost. */
  spending: Spending;
  /** Checkouts of repositories. */
  workspaces: WorkspaceSettings;
}

/** What one attempt works with. */
export interface ActionContext {
  run: RunAttempt;
  log: OutputLog;
  /** Takes the files that the action leaves, while it acts. */
  artifacts: AttemptArtifacts;
  /** Of an automation that signs what it sends: the current one and, in its grace period, the previous one. */
  signingSecrets?: readonly string[];
  /** Milliseconds the attempt may take, for people: the signal aborts when they are over. */
  timeoutMs: number;
  /**
   * Aborted when the attempt must end: for {@link TIMED_OUT}, or early. The action then ends what it started within a few
   * seconds and returns `interrupted`, or how it ended.
   */
  signal: AbortSignal;
  /** Takes the removal of what the action leaves: it is waited for, but does not count into the time limit. */
  tidyUp(removal: Promise<unknown>): void;
  lease: Readonly<Lease>;
  guard: Guard;
}

/** Executes the actions of one type. */
export interface Performer<A extends { type: string } = { type: string }> {
  perform(action: A, context: ActionContext): Promise<AttemptResult | 'interrupted'>;
}

/** The end of an attempt with what it left as its result. What is wrong with that is noted, and changes nothing else. */
export function withResult(
  ending: AttemptResult,
  found: FoundResult | undefined,
  log: OutputLog,
): AttemptResult {
  if (found === undefined) return ending;
  if ('text' in found) return { ...ending, result: found.text };
  log.note(found.problem);
  return { ...ending, outcome: { ...ending.outcome, resultProblem: found.problem } };
}
