import { setTimeout as sleep } from 'node:timers/promises';
import type { RateLimit } from '../core/automation.ts';
import { withDeadline } from '../core/deadline.ts';
import { ApiError, UNCONFIRMED_MESSAGE } from '../core/errors.ts';
import type { RunStatus, TraceContext } from '../core/run.ts';
import type { Authentication, ConfirmedKey, TriggeredAutomation } from '../store/automations.ts';
import { type IdempotencyRecord, type IdempotentRequest, idempotentRequest } from '../store/idempotency.ts';
import { QueueUnavailableError } from '../store/queue.ts';
import type { RateDecision } from '../store/rate-limiter.ts';
import { newRunId } from '../store/run-id.ts';
import type { NewRun } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import type { HealthMonitor } from './health-monitor.ts';

/**
 * A Redis that has answered nothing for this long may be frozen, in milliseconds. It is only asked then, and not told to
 * enqueue what it would enqueue once it goes on, after the caller has given up.
 */
export const STALL_MS = 200;

/** A reserved idempotency key is looked at this often, in milliseconds. */
const RESERVED_POLL_MS = 20;

export interface AcceptanceLimits {
  /** Milliseconds that Redis may take for all questions of one request together. */
  acceptTimeoutMs: number;
  /** Runs that may wait to be executed. */
  maxQueuedRuns: number;
}

/** A trigger request whose key and body are in order. */
export interface TriggerRequest extends TraceContext {
  /** JSON text of an object. */
  payload: string;
  requestId: string;
  idempotencyKey?: string;
}

/** The run that answers a request, and the response headers that say more about it. */
export interface Accepted {
  runId: string;
  status: RunStatus;
  headers: Record<string, string> | undefined;
  /** Whether an earlier request has made the run. */
  isReplay: boolean;
}

/**
 * What stands between a trigger request and its run: the key, the rate, the capacity, the queue. Every method throws
 * an ApiError of the catalogue, `queue_unavailable` included when Redis is away or takes too long.
 */
export class Acceptance {
  readonly #store: Store;
  readonly #health: HealthMonitor;
  readonly #limits: AcceptanceLimits;
  /** Runs accepted since the latest sample began, and since the one before it did. */
  #accepted = { latest: 0, before: 0 };
  #countedSample = new Date(0);
  /** Runs that are being accepted in one step, and since when Redis has said nothing about any of them. */
  #expected = { unanswered: 0, silentSince: 0 };

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

  /** What a key is expected to open, when a request with it may be accepted in one step: {@link acceptExpected}. */
  expected(slug: string, apiKey: string): ConfirmedKey | undefined {
    const { unanswered, silentSince } = this.#expected;
    const isStalled = unanswered > 0 && Date.now() - silentSince > STALL_MS;
    if (isStalled || this.#health.latest.status === 'unavailable' || this.#isNearLimit()) return undefined;
    return this.#store.automations.expected(slug, apiKey);
  }

  /**
   * Authenticates a request without idempotency key and makes its run, both in one question and both or neither.
   *
   * @returns undefined when the key does not open what was expected; {@link authenticate} then says what it does
   */
  async acceptExpected(
    expected: ConfirmedKey,
    trigger: Omit<TriggerRequest, 'idempotencyKey'>,
    deadline: number,
  ): Promise<Accepted | undefined> {
    const run = { id: newRunId(), ...trigger };
    const state = this.#expected;
    if (state.unanswered === 0) state.silentSince = Date.now();
    state.unanswered += 1;
    let isAccepted: boolean;
    try {
      isAccepted = await this.#confirm(this.#store.runs.acceptExpected(expected, run), deadline);
      state.silentSince = Date.now();
    } finally {
      state.unanswered -= 1;
    }
    if (isAccepted) return this.#queued(run.id);
    this.#store.automations.forget(expected.automation.slug);
    return undefined;
  }

  /** Refuses a request whose automation has used up its rate, before its body is looked at. Counts nothing. */
  async checkRate({ id, rate }: TriggeredAutomation, deadline: number): Promise<void> {
    if (!rate) return;
    const decision = await this.#ask(() => this.#store.rateLimiter.peek(id, rate), deadline);
    if (!decision.allowed) throw rateLimited(rate, decision);
  }

  /**
   * Makes a run, or finds the one that the request's idempotency key stands for. A new run counts against the
   * automation's rate, if it is accepted; a known one counts against nothing.
   */
  async accept(
    automation: TriggeredAutomation,
    request: TriggerRequest,
    deadline: number,
  ): Promise<Accepted> {
    const { idempotencyKey, ...rest } = request;
    const id = newRunId();
    if (idempotencyKey === undefined) return this.#enqueue(automation, { id, ...rest }, deadline);
    const idempotency = idempotentRequest(automation.id, idempotencyKey, request.payload);
    const known = await this.#ask(() => this.#store.idempotency.find(idempotency), deadline);
    if (known?.accepted) return this.#replay(known, idempotency, deadline);
    // Asked before the key is reserved as well, so that requests that must be refused do not wait for each other.
    await this.checkRate(automation, deadline);
    await this.#checkCapacity(deadline);
    const reserved = await this.#reserve(idempotency, id, deadline);
    if (reserved.accepted) return this.#replay(reserved, idempotency, deadline);
    try {
      return await this.#enqueue(automation, { id: reserved.runId, ...rest, idempotency }, deadline);
    } catch (error) {
      // A request that is known to have made no run uses up no key; one that may have made one keeps it.
      if (!(error instanceof ApiError && error.isUnconfirmed)) await this.#release(idempotency, id, deadline);
      throw error;
    }
  }

  /**
   * Ties the key to this request's run. While another request is about to enqueue a run for the same key, its outcome is
   * waited for; when none comes, because its process died, this request goes on with that request's run.
   */
  async #reserve(request: IdempotentRequest, runId: string, deadline: number): Promise<IdempotencyRecord> {
    const takeOverAt = Date.now() + (deadline - Date.now()) / 2;
    for (;;) {
      const other = await this.#ask(() => this.#store.idempotency.reserve(request, runId), deadline);
      if (!other) return { runId, payloadHash: request.payloadHash, accepted: false };
      checkSamePayload(other, request);
      if (other.accepted || Date.now() > takeOverAt) return other;
      await sleep(RESERVED_POLL_MS);
    }
  }

  /** Whoever waits for a key that could not be released takes it over after a while, so that a failure changes nothing. */
  async #release(request: IdempotentRequest, runId: string, deadline: number): Promise<void> {
    await this.#ask(() => this.#store.idempotency.release(request, runId), deadline).catch(() => undefined);
  }

  async #enqueue(automation: TriggeredAutomation, run: NewRun, deadline: number): Promise<Accepted> {
    await this.#checkCapacity(deadline);
    const { rate } = automation;
    const decision = rate && (await this.#takeRate(automation.id, rate, deadline));
    await this.#confirm(this.#store.runs.accept(automation, run), deadline);
    return this.#queued(run.id, rate && decision && rateHeaders(rate, decision));
  }

  #confirm<T>(enqueueing: Promise<T>, deadline: number): Promise<T> {
    return withDeadline(enqueueing, deadline - Date.now()).catch((cause) => {
      if (cause instanceof QueueUnavailableError) throw new ApiError('queue_unavailable', { cause });
      throw new ApiError('queue_unavailable', { cause, message: UNCONFIRMED_MESSAGE, isUnconfirmed: true });
    });
  }

  #queued(runId: string, headers?: Record<string, string>): Accepted {
    this.#accepted.latest += 1;
    return { runId, status: 'queued', headers, isReplay: false };
  }

  async #replay(known: IdempotencyRecord, request: IdempotentRequest, deadline: number): Promise<Accepted> {
    checkSamePayload(known, request);
    const { runId } = known;
    const run = await this.#ask(() => this.#store.runs.get(runId), deadline);
    // A run that is no longer kept has ended, and how it ended was noted with the key.
    const status = run?.status ?? known.status ?? 'failed';
    return { runId, status, headers: { 'idempotency-replayed': 'true' }, isReplay: true };
  }

  async #takeRate(automationId: string, rate: RateLimit, deadline: number): Promise<RateDecision> {
    const decision = await this.#ask(() => this.#store.rateLimiter.take(automationId, rate), deadline);
    if (!decision.allowed) throw rateLimited(rate, decision);
    return decision;
  }

  /** Counts exactly only near the limit. */
  async #checkCapacity(deadline: number): Promise<void> {
    if (!this.#isNearLimit()) return;
    const exact = await this.#ask(() => this.#store.runs.countQueued(), deadline);
    if (exact >= this.#limits.maxQueuedRuns) throw new ApiError('queue_full');
  }

  /**
   * Whether the latest sample plus what was accepted since reaches the limit. A sample may have been taken before runs
   * that were accepted while it was on its way, so that those count on.
   */
  #isNearLimit(): boolean {
    const { checkedAt, queuedRuns } = this.#health.latest;
    if (checkedAt !== this.#countedSample) {
      this.#countedSample = checkedAt;
      this.#accepted = { latest: 0, before: this.#accepted.latest };
    }
    const { latest, before } = this.#accepted;
    return queuedRuns + latest + before >= this.#limits.maxQueuedRuns;
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

function checkSamePayload({ payloadHash }: IdempotencyRecord, request: IdempotentRequest): void {
  if (payloadHash !== request.payloadHash) throw new ApiError('idempotency_key_reused');
}

function rateLimited(rate: RateLimit, decision: RateDecision): ApiError {
  const retryAfterSeconds = Math.max(1, Math.ceil(decision.resetMs / 1000));
  return new ApiError('rate_limited', { retryAfterSeconds, headers: rateHeaders(rate, decision) });
}

/** The fields of the IETF draft "RateLimit header fields for HTTP": the policy, and what is left of it. */
function rateHeaders(
  { limit, windowMs }: RateLimit,
  { remaining, resetMs }: RateDecision,
): Record<string, string> {
  return {
    'ratelimit-policy': `"automation";q=${limit};w=${windowMs / 1000}`,
    ratelimit: `"automation";r=${remaining};t=${Math.ceil(resetMs / 1000)}`,
  };
}
