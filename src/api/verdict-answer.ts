import type { RateLimit } from '../core/automation.ts';
import { ApiError, type ErrorId, UNCONFIRMED_MESSAGE } from '../core/errors.ts';
import type { RunStatus } from '../core/run.ts';
import type { TriggeredAutomation } from '../store/automations.ts';
import { QueueUnavailableError } from '../store/queue.ts';
import type { RateState } from '../store/run-acceptance.ts';
import type { RunQueue } from '../store/runs.ts';

type Verdict = Awaited<ReturnType<RunQueue['accept']>>;

/** What a verdict is answered with that has no run. */
const REFUSALS = {
  rejected: 'invalid_api_key',
  disabled: 'automation_disabled',
  reused: 'idempotency_key_reused',
  limited: 'rate_limited',
  full: 'queue_full',
} as const satisfies Record<Exclude<Verdict['status'], 'accepted' | 'replayed' | 'invalid'>, ErrorId>;

/** The run of a 202, and the headers that say more about it. */
interface AcceptedAnswer {
  runId: string;
  status: RunStatus;
  headers: Record<string, string>;
}

/**
 * What a verdict is answered with.
 *
 * @throws ApiError for a verdict without a run
 */
export function answerOf(verdict: Verdict, { rate }: TriggeredAutomation): AcceptedAnswer {
  switch (verdict.status) {
    case 'accepted':
      return { runId: verdict.runId, status: 'queued', headers: rateHeaders(rate, verdict.rate) };
    case 'replayed': {
      const { runId, runStatus } = verdict;
      return { runId, status: runStatus, headers: { 'idempotency-replayed': 'true' } };
    }
    case 'limited': {
      const retryAfterSeconds = Math.max(1, Math.ceil(verdict.rate.resetMs / 1000));
      throw new ApiError(REFUSALS.limited, { retryAfterSeconds, headers: rateHeaders(rate, verdict.rate) });
    }
    case 'invalid': {
      const message = `The payload does not fit the automation's schema: ${verdict.problem}.`;
      throw new ApiError('invalid_payload', { message });
    }
    default:
      throw new ApiError(REFUSALS[verdict.status]);
  }
}

/** Throws what a failure to accept a run is answered with. @param cause what the store has thrown */
export function throwUnaccepted(cause: unknown): never {
  if (cause instanceof QueueUnavailableError) throw new ApiError('queue_unavailable', { cause });
  throw new ApiError('queue_unavailable', { cause, message: UNCONFIRMED_MESSAGE });
}

/** The fields of the IETF draft "RateLimit header fields for HTTP": the policy, and what is left of it. */
function rateHeaders(rate: RateLimit | undefined, state: RateState | undefined): Record<string, string> {
  if (!rate || !state) return {};
  return {
    'ratelimit-policy': `"automation";q=${rate.limit};w=${rate.windowMs / 1000}`,
    ratelimit: `"automation";r=${state.remaining};t=${Math.ceil(state.resetMs / 1000)}`,
  };
}
