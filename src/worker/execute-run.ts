import type { Automation } from '../core/automation.ts';
import { withDeadline } from '../core/deadline.ts';
import {
  type AttemptResult,
  CANCELLED_BY_OPERATOR,
  type RunAttempt,
  type RunEndReason,
} from '../core/run.ts';
import type { Logger } from '../logger.ts';
import type { AutomationStore, ExecutableAutomation } from '../store/automations.ts';
import { CANCELLED, type Lease, LOCK_LOST } from '../store/consumer.ts';
import type { RunLogStore } from '../store/run-log.ts';
import type { ActionContext } from './actions/action.ts';
import { runCommand } from './actions/command.ts';
import { deliverToUrl } from './actions/http.ts';
import type { Guard } from './guard.ts';
import { OutputLog } from './output-log.ts';

/** A run on which this many workers died is not given to another: it may be what kills them. */
const MAX_WORKERS_LOST = 3;

const CANCELLED_RESULT: AttemptResult = { outcome: CANCELLED_BY_OPERATOR, mayRetry: false };

/** How long the log of a lost run is waited for, in milliseconds. */
const LOST_FLUSH_MS = 1000;

export interface ExecutionDependencies {
  automations: AutomationStore;
  runLogs: RunLogStore;
  logger: Logger;
  guard: Guard;
  workerEnvironment: Readonly<NodeJS.ProcessEnv>;
  /** Milliseconds, for automations without a limit of their own. */
  defaultTimeoutMs: number;
  retentionSeconds: number;
  version: string;
}

/** Makes one attempt at a run: checks that it may still be executed, acts, and says how it ended. */
export async function executeRun(
  dependencies: ExecutionDependencies,
  run: RunAttempt,
  signal: AbortSignal,
  lease: Readonly<Lease>,
): Promise<AttemptResult | 'interrupted'> {
  const { automations, runLogs, logger, guard, retentionSeconds } = dependencies;
  const log = new OutputLog(runLogs, run, retentionSeconds);
  const { id: runId, automation: slug, attempt, requestId } = run;
  // The names are those of the API's log, so that a request and its run are found together.
  const named = { requestId, automation: slug, runId, attempt };
  const startedAt = Date.now();
  logger.info({ ...named, status: 'running' }, 'run started');

  const automation = await automations.get(slug);
  const refusal = signal.reason === CANCELLED ? CANCELLED_RESULT : refuse(run, automation);
  let result: AttemptResult | 'interrupted' | undefined = refusal;
  // A worker that was frozen while it asked has lost the run, and is told so only after it would have started it.
  if (automation && !result && Date.now() < lease.endsAt) {
    log.note(`Attempt ${attempt} starts on worker ${guard.workerId}.`);
    const context = { run, log, signal, lease, guard };
    result = await act(dependencies, automation, context).catch((err: Error) => {
      logger.error({ err, ...named }, 'attempt failed unexpectedly');
      return workerError(err);
    });
  }
  // A worker that was frozen hears of the end of its commands, which the guard ended, before it notices that time went by.
  const isLost = signal.reason === LOCK_LOST || Date.now() >= lease.endsAt;
  if (isLost) result = 'interrupted';
  // Interrupted work has no outcome, unless it is not to be done again; that of a lost run is left to who holds it now.
  if (result === 'interrupted' && !isLost) result = outcomeOfInterruption(signal.reason, automation);
  if (result === 'interrupted') {
    const reason = isLost ? LOCK_LOST : String(signal.reason);
    log.note(`Attempt ${attempt} was interrupted: ${reason}.`);
    logger.warn({ ...named, reason, durationMs: Date.now() - startedAt }, 'run interrupted');
    // Where Redis does not answer, nothing is gained by waiting for it.
    if (isLost) await withDeadline(log.flush(), LOST_FLUSH_MS).catch(() => undefined);
    else await log.flush();
    return 'interrupted';
  }
  result ??= cancelled('automation_deleted', 'The automation was deleted before the run was executed.');

  const { outcome } = result;
  log.note(`Attempt ${attempt} ended: ${outcome.message}`);
  await log.flush();
  logEnding(logger, named, run, result, Date.now() - startedAt);
  return result;
}

/** @param named the fields that every line about the attempt has */
function logEnding(
  logger: Logger,
  named: object,
  { isLast }: RunAttempt,
  { outcome, mayRetry }: AttemptResult,
  durationMs: number,
): void {
  const { status, reason, exitCode, httpStatus, message } = outcome;
  const ending = { reason, exitCode, httpStatus, durationMs, message };
  if (mayRetry && !isLast) logger.info({ ...named, status: 'retrying', ...ending }, 'run retries');
  else logger.info({ ...named, status, ...ending }, 'run ended');
}

/** Why a run is not to be executed, if so. */
function refuse(run: RunAttempt, automation: Automation | undefined): AttemptResult | undefined {
  if (!automation || automation.id !== run.automationId) {
    return cancelled('automation_deleted', 'The automation was deleted before the run was executed.');
  }
  if (!automation.enabled) {
    return cancelled('automation_disabled', 'The automation was disabled before the run was executed.');
  }
  if (run.workersLost > 0 && automation.onWorkerLoss === 'fail') {
    return workerLost('The worker died while executing the run, and the run must not be repeated.');
  }
  if (run.workersLost >= MAX_WORKERS_LOST) {
    return workerLost(`${run.workersLost} workers died while executing the run.`);
  }
  return undefined;
}

function outcomeOfInterruption(
  reason: unknown,
  automation: Automation | undefined,
): AttemptResult | 'interrupted' {
  if (reason === CANCELLED) return CANCELLED_RESULT;
  if (automation?.onWorkerLoss !== 'fail') return 'interrupted';
  return workerLost('The worker shut down before the run had ended, and the run must not be repeated.');
}

function cancelled(reason: RunEndReason, message: string): AttemptResult {
  return { outcome: { status: 'cancelled', reason, message }, mayRetry: false };
}

function workerLost(message: string): AttemptResult {
  return { outcome: { status: 'failed', reason: 'worker_lost', message }, mayRetry: false };
}

/** A failure of orc itself, which another attempt, on another worker perhaps, may not meet. */
function workerError(error: Error): AttemptResult {
  const message = `The worker could not execute the run: ${error.message}.`;
  return { outcome: { status: 'failed', reason: 'worker_error', message }, mayRetry: true };
}

async function act(
  { workerEnvironment, defaultTimeoutMs, version }: ExecutionDependencies,
  { action, signingSecret = '', timeoutMs = defaultTimeoutMs }: ExecutableAutomation,
  attempt: Omit<ActionContext, 'timeoutMs'>,
): Promise<AttemptResult | 'interrupted'> {
  const context = { ...attempt, timeoutMs };
  return action.type === 'command'
    ? runCommand(action, workerEnvironment, context)
    : deliverToUrl(action, signingSecret, version, context);
}
