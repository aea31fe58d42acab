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
 * The transitions that exist. `running → queued` is a worker that shuts down and hands its run back, or one that died
 * while its automation says `rerun`; `queued → failed` is a run whose workers died on it too often.
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

/** Why an attempt, or with it the run, ended. */
export type RunEndReason =
  | ActionEndReason
  | 'timeout'
  | 'not_started'
  | 'worker_lost'
  | 'worker_error'
  | 'cancelled_by_operator'
  | 'automation_disabled'
  | 'automation_deleted';

/** How an attempt ended, in words for people and in fields for programs. */
export interface RunOutcome {
  status: TerminalRunStatus;
  reason: RunEndReason;
  message: string;
  exitCode?: number;
  signal?: string;
  httpStatus?: number;
}

/** How a run ends that an operator cancels. */
export const CANCELLED_BY_OPERATOR: RunOutcome = {
  status: 'cancelled',
  reason: 'cancelled_by_operator',
  message: 'An operator cancelled the run.',
};

/** How an attempt ended, and whether another one may do better. */
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
  /** How the latest attempt ended; final when the status is terminal. */
  outcome?: RunOutcome;
  /** The run that this one repeats, at an operator's wish. */
  retryOf?: string;
  /** When an operator asked for its end. */
  cancelRequestedAt?: Date;
  /** The caller's `x-request-id`, or the one made for it. */
  requestId: string;
  caller?: Caller;
  payloadBytes: number;
}

/** The trace that something belongs to, by the headers of W3C Trace Context. There is no state without a parent. */
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
  /** Absent while it goes on, and for an attempt whose worker died. */
  endedAt?: Date;
  outcome?: RunOutcome;
  /** Why it ended without an outcome, in which case another attempt follows. */
  interruption?: string;
}

/** A run as a worker receives it, for one attempt. */
export interface RunAttempt extends TraceContext {
  id: string;
  automation: string;
  /** The automation's id when the run was accepted; another id under the same slug is another automation. */
  automationId: string;
  /** From 1. */
  attempt: number;
  /** Whether no other attempt follows when this one fails. */
  isLast: boolean;
  acceptedAt: Date;
  requestId: string;
  /** The request body exactly as it was received; `{}` when there was none. */
  payload: Buffer;
  /** How many times a worker died while executing this run. */
  workersLost: number;
}
