import type { Action } from './actions/actions.ts';

/**
 * The terms of this domain:
 *
 * - automation: an action that can be started over HTTP; named by its slug.
 * - action: what an automation does: start a command or deliver to a URL.
 * - run: one accepted trigger of an automation, from `queued` to a terminal status.
 * - attempt: one execution of a run's action; a run has one or more.
 * - trigger payload: the JSON object of the trigger request, passed to the run byte for byte.
 * - worker: a process that takes runs from the queue and executes them.
 */

export const SLUG_PATTERN = '^[a-z0-9]+(-[a-z0-9]+)*$';
export const SLUG_MAX_LENGTH = 64;
const slugExpression = new RegExp(SLUG_PATTERN);

/** Whether a string may name an automation: lower-case words of letters and digits joined by single hyphens. */
export function isSlug(value: string): boolean {
  return value.length <= SLUG_MAX_LENGTH && slugExpression.test(value);
}

/** A week. Node's timers cannot exceed 24 days. */
export const MAX_TIMEOUT_MS = 7 * 86_400_000;
export const MAX_ATTEMPTS = 100;
export const MAX_CONCURRENCY = 100_000;
export const MAX_KEPT_RUNS = 100_000_000;

/** What to do with a run whose worker died while executing it. */
export const ON_WORKER_LOSS = ['rerun', 'fail'] as const;
export type OnWorkerLoss = (typeof ON_WORKER_LOSS)[number];

/** At most `limit` accepted runs in any window of `windowMs` milliseconds that starts with an accepted run. */
export interface RateLimit {
  limit: number;
  windowMs: number;
}

/** What an operator decides about an automation. */
export interface AutomationDefinition {
  slug: string;
  name: string;
  enabled: boolean;
  action: Action;
  /** Time limit of one attempt, in milliseconds. Default: the worker's RUN_TIMEOUT_MS. */
  timeoutMs?: number;
  /** Maximum number of attempts, including the first. */
  attempts: number;
  /** Maximum number of runs that execute at the same time, over all workers. Default: no limit. */
  concurrency?: number;
  rate?: RateLimit;
  /** Number of ended runs to keep. Default: RUN_RETENTION_COUNT. */
  keepRuns?: number;
  onWorkerLoss: OnWorkerLoss;
}

export interface Automation extends AutomationDefinition {
  /** Distinguishes an automation from a later one with the same slug. */
  id: string;
  createdAt: Date;
  updatedAt: Date;
  keyCreatedAt: Date;
  /** Until when the previous key is accepted. */
  previousKeyEndsAt?: Date;
}
