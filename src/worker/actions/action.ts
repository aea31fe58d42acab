import type { AttemptResult, RunAttempt } from '../../core/run.ts';
import type { ExecutableAutomation } from '../../store/automations.ts';
import type { Guard } from '../guard/guard.ts';
import type { Lease } from '../lease.ts';
import type { OutputLog } from '../output-log.ts';

/** Why the signal of an action aborts when the attempt's time is over. */
export const TIMED_OUT = 'timed out';

/** What an action works with. */
export interface ActionContext {
  run: RunAttempt;
  log: OutputLog;
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

/** What automations do, whatever the type of their action. */
export interface Actions {
  perform(automation: ExecutableAutomation, context: ActionContext): Promise<AttemptResult | 'interrupted'>;
  /** What the action is given and nobody may read in what it prints. */
  secretsOf(automation: ExecutableAutomation): string[];
}
