import type { Action } from './actions/actions.ts';

/**
 * The words of this domain, used with one meaning everywhere:
 *
 * - automation: something a workspace has configured to be started over HTTP; named by its slug.
 * - action: what an automation does when it runs: start a command, or deliver to a URL.
 * - run: one accepted trigger of an automation, from `queued` to a terminal status.
 * - attempt: one execution of a run's action; a run has one or more.
 * - trigger payload: the JSON object of the trigger request, handed to the run byte for byte.
 * - worker: a process that takes runs from the queue and executes them.
 */

export const SLUG_PATTERN = '^[a-z0-9]+(-[a-z0-9]+)*$';
export const SLUG_MAX_LENGTH = 64;
const slugExpression = new RegExp(SLUG_PATTERN);

/** Whether a string may name an automation: lower-case words of letters and digits joined by single hyphens. */
export function isSlug(value: string): boolean {
  return value.length <= SLUG_MAX_LENGTH && slugExpression.test(value);
}

/** One attempt takes no longer than a week: Node's timers end at 24 days. */
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

/** What an operator decides about an automation when creating it. */
export interface AutomationDefinition {
  slug: string;
  name: string;
  enabled: boolean;
  action: Action;
  /** Milliseconds one attempt may take; without it the worker's RUN_TIMEOUT_MS counts. */
  timeoutMs?: number;
  /** How often a failing run is executed at most, the first time included. */
  attempts: number;
  /** How many runs may execute at the same time, over all workers; without it there is no limit. */
  concurrency?: number;
  rate?: RateLimit;
  /** How many ended runs are kept at most; without it RUN_RETENTION_COUNT counts. */
  keepRuns?: number;
  onWorkerLoss: OnWorkerLoss;
}

export interface Automation extends AutomationDefinition {
  /** Distinguishes an automation from a later one that was given the same slug. */
  id: string;
  createdAt: Date;
  updatedAt: Date;
  keyCreatedAt: Date;
  /** The moment until which the key before the current one is still accepted. */
  previousKeyEndsAt?: Date;
}
