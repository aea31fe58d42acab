import { type Action, actionTypeOf } from './actions/actions.ts';
import type { PayloadSchema } from './payload-schema-cost.ts';

/**
 * The terms of this domain:
 *
 * - automation: an action that can be started over HTTP; named by its slug.
 * - action: what an automation does: start a command or deliver to a URL.
 * - run: one accepted trigger of an automation, from `queued` to a terminal status.
 * - attempt: one execution of a run's action; a run has one or more.
 * - event: what is sent to a URL of the automation when a run has ended.
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

/** Longest grace period of an old key or signing secret, in milliseconds. */
export const MAX_GRACE_MS = 365 * 86_400_000;

/** What to do with a run whose worker died while executing it. */
export const ON_WORKER_LOSS = ['rerun', 'fail'] as const;
export type OnWorkerLoss = (typeof ON_WORKER_LOSS)[number];

/** What to do with a run that finds all places of `concurrency` taken. */
export const WHEN_BUSY = ['queue', 'skip'] as const;
export type WhenBusy = (typeof WHEN_BUSY)[number];

/** Largest `concurrency` with `skip`: whether a place is free is looked up run by run. */
export const MAX_SKIPPING_CONCURRENCY = 1000;

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
  /** Default: `queue`. */
  whenBusy?: WhenBusy;
  rate?: RateLimit;
  /** Number of ended runs to keep. Default: RUN_RETENTION_COUNT. */
  keepRuns?: number;
  onWorkerLoss: OnWorkerLoss;
  /** URL that is sent an event when a run has ended. */
  onEnd?: string;
  /** URL that is sent an event when a run has failed or timed out. */
  onFailure?: string;
  /** Refuses payloads that it does not hold for. Default: every JSON object is accepted. */
  schema?: PayloadSchema;
}

/** Whether something that it sends is signed, so that it needs a signing secret. */
export function isSigned({ action, onEnd, onFailure }: AutomationDefinition): boolean {
  return actionTypeOf(action).isSigned || onEnd !== undefined || onFailure !== undefined;
}

export interface Automation extends AutomationDefinition {
  /** Distinguishes an automation from a later one with the same slug. */
  id: string;
  createdAt: Date;
  updatedAt: Date;
  keyCreatedAt: Date;
  /** Since when its runs are accepted and wait; absent if it is not paused. */
  pausedAt?: Date;
  /** Why, if no operator paused it: a sentence. */
  pauseReason?: string;
  /** Until when the previous key is accepted. */
  previousKeyEndsAt?: Date;
  /** Until when what is sent is also signed with the previous signing secret. */
  previousSecretEndsAt?: Date;
}
