import { actionTypeOf } from '../core/actions/actions.ts';
import type { Automation } from '../core/automation.ts';
import { formatDuration, formatRate } from '../core/durations.ts';
import { maskReceiverUrl } from '../core/masked-url.ts';
import type { Rejection } from '../store/rejections.ts';

/** One fact about an automation: what it is, and its value in words. */
export type Fact = [label: string, text: string | undefined];

/** What an operator is shown of an automation: without possible secrets. Facts without a text do not apply. */
export function automationFacts(
  automation: Automation,
  lastSuccess: Date | undefined,
  rejections: readonly Rejection[],
): Fact[] {
  const { action, timeoutMs, rate, concurrency, previousKeyEndsAt } = automation;
  return [
    ['slug', automation.slug],
    ['name', automation.name || undefined],
    ['state', automationState(automation)],
    ['paused since', automation.pausedAt?.toISOString()],
    ['paused because', automation.pauseReason],
    ...actionTypeOf(action).describe(action),
    ['timeout', timeoutMs === undefined ? 'as RUN_TIMEOUT_MS says' : formatDuration(timeoutMs)],
    ['attempts', String(automation.attempts)],
    ['concurrency', concurrency === undefined ? 'no limit' : String(concurrency)],
    ['when busy', automation.whenBusy],
    ['rate', rate ? formatRate(rate) : 'no limit'],
    ['kept runs', automation.keepRuns === undefined ? 'RUN_RETENTION_COUNT' : String(automation.keepRuns)],
    ['worker loss', automation.onWorkerLoss],
    ['on end', automation.onEnd && maskReceiverUrl(automation.onEnd)],
    ['on failure', automation.onFailure && maskReceiverUrl(automation.onFailure)],
    ['payload', automation.schema ? 'must fit its schema, see --json' : 'any JSON object'],
    ['last success', lastSuccess?.toISOString() ?? 'never'],
    ...describeRejections(rejections),
    ['created', automation.createdAt.toISOString()],
    ['key issued', automation.keyCreatedAt.toISOString()],
    ['old key ends', previousKeyEndsAt?.toISOString()],
    ['old secret ends', automation.previousSecretEndsAt?.toISOString()],
  ];
}

/** A disabled automation accepts no runs, paused or not. */
export function automationState({
  enabled,
  pausedAt,
}: Pick<Automation, 'enabled' | 'pausedAt'>): 'enabled' | 'disabled' | 'paused' {
  if (!enabled) return 'disabled';
  return pausedAt ? 'paused' : 'enabled';
}

/** One line per error, the latest first. */
function describeRejections(rejections: readonly Rejection[]): Fact[] {
  if (rejections.length === 0) return [['rejected', 'no request']];
  return rejections.map(({ error, count, lastAt }, index) => [
    index === 0 ? 'rejected' : '',
    `${count} ${error}, last at ${lastAt.toISOString()}`,
  ]);
}
