import type { ActionEndReason } from './actions/actions.ts';

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

/** Why an attempt or a run ended. */
export type RunEndReason =
  | ActionEndReason
  | 'timeout'
  | 'not_started'
  | 'worker_lost'
  | 'worker_error'
  | 'cancelled_by_operator'
  | 'automation_disabled'
  | 'automation_deleted';

/** How an attempt ended: a message for people and fields for programs. */
export interface RunOutcome {
  status: TerminalRunStatus;
  reason: RunEndReason;
  message: string;
  exitCode?: number;
  signal?: string;
  httpStatus?: number;
}

/** The outcome of a run that an operator cancels. */
export const CANCELLED_BY_OPERATOR: RunOutcome = {
  status: 'cancelled',
  reason: 'cancelled_by_operator',
  message: 'An operator cancelled the run.',
};

/** How an attempt ended, and whether a retry makes sense. */
export interface AttemptResult {
  outcome: RunOutcome;
  mayRetry: boolean;
}

/** Who asked for a run over HTTP. */
export interface Caller {
  /** IP address. */
  address: string;
  /** The first 200 bytes of the header `User-Agent`. */
  userAgent?: string;
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
