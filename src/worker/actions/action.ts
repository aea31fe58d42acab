import type { RunAttempt } from '../../core/run.ts';
import type { Lease } from '../../store/consumer.ts';
import type { Guard } from '../guard.ts';
import type { OutputLog } from '../output-log.ts';

/** What an action works with. */
export interface ActionContext {
  run: RunAttempt;
  log: OutputLog;
  /** Milliseconds the attempt may take. */
  timeoutMs: number;
  /** Aborted when the attempt must end early; the action then ends what it started and returns `interrupted`. */
  signal: AbortSignal;
  lease: Readonly<Lease>;
  guard: Guard;
}
