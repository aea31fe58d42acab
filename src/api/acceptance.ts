import type { RateLimit } from '../core/automation.ts';
import { withDeadline } from '../core/deadline.ts';
import { ApiError, UNCONFIRMED_MESSAGE } from '../core/errors.ts';
import type { Authentication, TriggeredAutomation } from '../store/automations.ts';
import { QueueUnavailableError } from '../store/queue.ts';
import type { AcceptedRun } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import type { HealthMonitor } from './health-monitor.ts';

export interface AcceptanceLimits {
  /** Milliseconds that Redis may take for all questions of one request together. */
  acceptTimeoutMs: number;
  /** Runs that may wait to be executed. */
  maxQueuedRuns: number;
}

/**
 * What stands between a trigger request and its run: the key, the rate, the capacity, the queue. Every method throws
 * an ApiError of the catalogue, `queue_unavailable` included when Redis is away or takes too long.
 */
export class Acceptance {
  readonly #store: Store;
  readonly #health: HealthMonitor;
  readonly #limits: AcceptanceLimits;
  #acceptedSinceSample = 0;
  #countedSample = new Date(0);

  constructor(store: Store, health: HealthMonitor, limits: AcceptanceLimits) {
    this.#store = store;
    this.#health = health;
    this.#limits = limits;
  }

  /** The moment until which a request that begins now is answered, in milliseconds since the epoch. */
  deadline(): number {
    return Date.now() + this.#limits.acceptTimeoutMs;
  }

  authenticate(slug: string, apiKey: string, deadline: number): Promise<Authentication> {
    return this.#ask(() => this.#store.automations.authenticate(slug, apiKey), deadline);
  }

  /** Refuses a request whose automation has used up its rate, before its body is looked at. Counts nothing. */
  async checkRate({ id, rate }: TriggeredAutomation, deadline: number): Promise<void> {
    if (!rate) return;
    const decision = await this.#ask(() => this.#store.rateLimiter.peek(id, rate), deadline);
    if (!decision.allowed) throw rateLimited(decision.retryAfterMs);
  }

  /**
   * Enqueues a run, which counts against the automation's rate only if it is accepted.
   *
   * @param payload JSON text of an object
   */
  async accept(
    automation: TriggeredAutomation,
    payload: string,
    origin: { requestId: string; traceparent?: string },
    deadline: number,
  ): Promise<AcceptedRun> {
    await this.#checkCapacity(deadline);
    const { rate } = automation;
    if (rate) await this.#takeRate(automation.id, rate, deadline);
    try {
      const enqueue = this.#store.runs.accept(automation, payload, origin);
      const run = await withDeadline(enqueue, deadline - Date.now());
      this.#acceptedSinceSample += 1;
      return run;
    } catch (cause) {
      if (rate) this.#store.rateLimiter.giveBack(automation.id).catch(() => {});
      const isCertain = cause instanceof QueueUnavailableError;
      throw new ApiError('queue_unavailable', { cause, ...(!isCertain && { message: UNCONFIRMED_MESSAGE }) });
    }
  }

  async #takeRate(automationId: string, rate: RateLimit, deadline: number): Promise<void> {
    const decision = await this.#ask(() => this.#store.rateLimiter.take(automationId, rate), deadline);
    if (!decision.allowed) throw rateLimited(decision.retryAfterMs);
  }

  /** Counts exactly only near the limit; below it, the latest sample plus what was accepted since is enough. */
  async #checkCapacity(deadline: number): Promise<void> {
    const { checkedAt, queuedRuns } = this.#health.latest;
    if (checkedAt !== this.#countedSample) {
      this.#countedSample = checkedAt;
      this.#acceptedSinceSample = 0;
    }
    if (queuedRuns + this.#acceptedSinceSample < this.#limits.maxQueuedRuns) return;
    const exact = await this.#ask(() => this.#store.runs.countQueued(), deadline);
    if (exact >= this.#limits.maxQueuedRuns) throw new ApiError('queue_full');
  }

  /** Asks Redis something that changes nothing, unless it is known to be away. */
  async #ask<T>(question: () => Promise<T>, deadline: number): Promise<T> {
    if (this.#health.latest.status === 'unavailable') {
      throw new ApiError('queue_unavailable', { cause: new Error('the latest health check failed') });
    }
    try {
      return await withDeadline(question(), deadline - Date.now());
    } catch (cause) {
      throw new ApiError('queue_unavailable', { cause });
    }
  }
}

function rateLimited(retryAfterMs: number): ApiError {
  return new ApiError('rate_limited', { retryAfterSeconds: Math.max(1, Math.ceil(retryAfterMs / 1000)) });
}
