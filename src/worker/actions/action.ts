import type { Config } from '../../config.ts';
import type { AttemptResult, RunAttempt } from '../../core/run.ts';
import type { Guard } from '../guard/guard.ts';
import type { Lease } from '../lease.ts';
import type { OutputLog } from '../output-log.ts';
import type { WorkFolders } from '../work-folders.ts';

/** Why the signal of an action aborts when the attempt's time is over. */
export const TIMED_OUT = 'timed out';

/** What the actions of a worker have in common. */
export interface ActionSettings {
  config: Pick<Config, 'DELIVERY_DENY' | 'version'>;
  /** The worker's own, of which commands get a part. */
  environment: Readonly<NodeJS.ProcessEnv>;
  workFolders: WorkFolders;
}

/** What one attempt works with. */
export interface ActionContext {
  run: RunAttempt;
  log: OutputLog;
  /** Of an automation that signs what it sends. */
  signingSecret?: string | undefined;
  /** Milliseconds the attempt may take, for people: the signal aborts when they are over. */
  timeoutMs: number;
  /**
   * Aborted when the attempt must end: for {@link TIMED_OUT}, or early. The action then ends what it started within a few
   * seconds and returns `interrupted`, or how it ended.
   */
  signal: AbortSignal;
  lease: Readonly<Lease>;
  guard: Guard;
}

/** Executes the actions of one type. */
export interface Performer<A extends { type: string } = { type: string }> {
  perform(action: A, context: ActionContext): Promise<AttemptResult | 'interrupted'>;
}
