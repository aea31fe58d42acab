import { ACTION_END_REASONS } from './actions/actions.ts';
import type { AgentReport } from './agent-event.ts';

/** Where a run stands. The last four are terminal: a run that has one of them never changes again. */
export const RUN_STATUSES = [
  'queued',
  'running',
  'retrying',
  'succeeded',
  'failed',
  'timed_out',
  'cancelled',
] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** The first three groups of the UUID: the millisecond of the acceptance, and 12 bits that differ within it. */
const SHORT_ID = /^run_([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4})-/;

/** The form of an id in which people see it in lists. */
export function shortRunId(runId: string): string {
  return SHORT_ID.exec(runId)?.[1] ?? runId;
}

/**
 * The possible transitions. `running → queued`: the worker shut down and returned the run, or died and the automation says
 * `rerun`. `queued → failed`: too many workers died while executing the run.
 */
export const RUN_TRANSITIONS: Readonly<Record<RunStatus, readonly RunStatus[]>> = {
  queued: ['running', 'cancelled', 'failed'],
  running: ['queued', 'retrying', 'succeeded', 'failed', 'timed_out', 'cancelled'],
  retrying: ['running', 'cancelled', 'failed'],
  succeeded: [],
  failed: [],
  timed_out: [],
  cancelled: [],
};

export type TerminalRunStatus = 'succeeded' | 'failed' | 'timed_out' | 'cancelled';

export function isTerminal(status: RunStatus): status is TerminalRunStatus {
  return RUN_TRANSITIONS[status].length === 0;
}

/** Whether a run counts as failed. A cancelled one does not: somebody wanted it so. */
export function isFailure(status: RunStatus | undefined): boolean {
  return status === 'failed' || status === 'timed_out';
}

/** Why an attempt or a run ended. */
export const RUN_END_REASONS = [
  ...ACTION_END_REASONS,
  'timeout',
  'not_started',
  'worker_lost',
  'worker_error',
  'cancelled_by_operator',
  'automation_disabled',
  'automation_deleted',
  'automation_busy',
] as const;
export type RunEndReason = (typeof RUN_END_REASONS)[number];

/** Largest result of a run, in bytes. */
export const MAX_RESULT_BYTES = 64 * 1024;

/** How an attempt ended: a message for people and fields for programs. Secrets are masked. */
export interface RunOutcome {
  status: TerminalRunStatus;
  reason: RunEndReason;
  /** In orc's own words. */
  message: string;
  /**
   * The last line that a failed attempt printed, or that of its check: one line of at most 300 characters, control characters shown. For operators
   * only.
   */
  detail?: string;
  exitCode?: number;
  signal?: string;
  httpStatus?: number;
  /** Size of the run's result; present only if it has one. */
  resultBytes?: number;
  /** Of an agent. */
  agent?: AgentReport;
  /** Why what was meant to be the result is not kept: one sentence. */
  resultProblem?: string;
}

/** An outcome in one line, for operators: the message and the last line that the attempt printed. */
export function outcomeLine({ message, detail }: Pick<RunOutcome, 'message' | 'detail'>): string {
  return detail === undefined ? message : `${message.replace(/\.$/, '')}: ${detail}`;
}

/** What says most about an outcome first, for a column that may be cut. */
export function outcomeSummary({
  reason,
  message,
  detail,
  exitCode,
  signal,
  httpStatus,
}: RunOutcome): string {
  if (detail === undefined)
    return message.replace(/^The (command could not be started|request failed): /, '');
  if (reason === 'timeout') return `timeout: ${detail}`;
  if (exitCode !== undefined) return `exit ${exitCode}: ${detail}`;
  return `${signal ?? (httpStatus === undefined ? reason : `HTTP ${httpStatus}`)}: ${detail}`;
}

/** Says of a run in its automation's lane when its next attempt begins. */
export const HELD = 'when its automation is resumed, or has a free place';

/** The outcome of a run that an operator cancels. */
export const CANCELLED_BY_OPERATOR: RunOutcome = {
  status: 'cancelled',
  reason: 'cancelled_by_operator',
  message: 'An operator cancelled the run.',
};

/** The outcome of a run that finds all places of its automation's `concurrency` taken, and may not wait for one. */
export function skippedOutcome(concurrency: number): RunOutcome {
  return {
    status: 'cancelled',
    reason: 'automation_busy',
    message: `Skipped: as many runs were under way as --concurrency ${concurrency} allows, and --when-busy is skip.`,
  };
}

/** How an attempt ended, and whether a retry makes sense. */
export interface AttemptResult {
  outcome: RunOutcome;
  mayRetry: boolean;
  /** JSON text of an object of at most {@link MAX_RESULT_BYTES}: the result, if the run ends with this attempt. */
  result?: string;
}

/** Who asked for a run. */
export type Caller = HttpCaller | OperatorCaller;

export interface HttpCaller {
  /** IP address. */
  address: string;
  /** The first 200 bytes of the header `User-Agent`. */
  userAgent?: string;
}

/** An operator on the command line. */
export interface OperatorCaller {
  /** Name of the user of the operating system. */
  user: string;
  /** Name of the machine. */
  host: string;
}

/** A run as operators see it. */
export interface Run {
  id: string;
  /** Slug of its automation. */
  automation: string;
  status: RunStatus;
  acceptedAt: Date;
  /** Start of the latest attempt. */
  startedAt?: Date;
  /** Start of the first attempt. */
  firstStartedAt?: Date;
  endedAt?: Date;
  /** Number of the latest attempt that was started, from 1; 0 before the first. */
  attempt: number;
  maxAttempts: number;
  /** Worker of the latest attempt. */
  worker?: string;
  /** Outcome of the latest attempt; final when the status is terminal. */
  outcome?: RunOutcome;
  /** The run that this one repeats (`orc runs retry`). */
  retryOf?: string;
  /** When an operator cancelled it. */
  cancelRequestedAt?: Date;
  /** The caller's `x-request-id`, or a generated one. */
  requestId: string;
  caller?: Caller;
  payloadBytes: number;
}

/** The headers of W3C Trace Context. `tracestate` never comes without `traceparent`. */
export interface TraceContext {
  traceparent?: string;
  tracestate?: string;
}

/** One attempt at a run, as operators see it. */
export interface RunAttemptRecord {
  /** From 1. */
  attempt: number;
  worker: string;
  startedAt: Date;
  /** Absent while it executes, and for an attempt whose worker died. */
  endedAt?: Date;
  outcome?: RunOutcome;
  /** Why it ended without an outcome; then another attempt follows. */
  interruption?: string;
}

/** A run as a worker receives it, for one attempt. */
export interface RunAttempt extends TraceContext {
  id: string;
  automation: string;
  /** Id of the automation that accepted the run; another id under the same slug is another automation. */
  automationId: string;
  /** From 1. */
  attempt: number;
  /** Whether this is the last attempt. */
  isLast: boolean;
  acceptedAt: Date;
  requestId: string;
  /** The bytes of the request body; `{}` when there was none. */
  payload: Buffer;
  /** How many workers died while executing this run. */
  workersLost: number;
}
