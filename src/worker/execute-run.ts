import { describeOmitted } from '../core/artifact.ts';
import { withDeadline } from '../core/deadline.ts';
import {
  type AttemptResult,
  CANCELLED_BY_OPERATOR,
  type RunAttempt,
  type RunEndReason,
  type RunOutcome,
} from '../core/run.ts';
import type { Logger } from '../logger.ts';
import type { ArtifactStore } from '../store/artifacts.ts';
import type { ExecutableAutomation } from '../store/automations.ts';
import type { RunLogStore } from '../store/run-log.ts';
import { withResult } from './actions/action.ts';
import type { Actions } from './actions/actions.ts';
import { AttemptArtifacts } from './attempt-artifacts.ts';
import type { Guard } from './guard/guard.ts';
import { CANCELLED, isOver, type Lease, LOCK_LOST } from './lease.ts';
import { OutputLog } from './output-log.ts';
import { maskResult } from './run-result.ts';
import { SecretMask } from './secret-mask.ts';
import { settleAttempt } from './settle-attempt.ts';

/** A run on which this many workers died is not given to another: it may be what kills them. */
const MAX_WORKERS_LOST = 3;

const CANCELLED_RESULT: AttemptResult = { outcome: CANCELLED_BY_OPERATOR, mayRetry: false };

/** Files left out that the log names; `orc runs show` names more. */
const MAX_NOTED_FILES = 20;

/** How long the log of a lost run is waited for, in milliseconds. */
const LOST_FLUSH_MS = 1000;

export interface ExecutionDependencies {
  /** Over the connection by which the queue is told how a run ended. */
  runLogs: RunLogStore;
  /** Over the same connection. */
  artifacts: ArtifactStore;
  logger: Logger;
  guard: Guard;
  actions: Actions;
  /** Milliseconds, for automations without a limit of their own. */
  defaultTimeoutMs: number;
  retentionSeconds: number;
  /** Bytes of artifacts that are kept of one run. */
  artifactLimitBytes: number;
}

/** Makes one attempt at a run: checks that it may still be executed, acts, and says how it ended. */
export async function executeRun(
  dependencies: ExecutionDependencies,
  run: RunAttempt,
  signal: AbortSignal,
  lease: Readonly<Lease>,
  automation: ExecutableAutomation | undefined,
): Promise<AttemptResult | 'interrupted'> {
  const { runLogs, logger, guard, actions, retentionSeconds } = dependencies;
  const mask = new SecretMask(automation ? actions.secretsOf(automation) : []);
  const log = new OutputLog(runLogs, run, retentionSeconds, mask);
  const { id: runId, automation: slug, attempt, requestId } = run;
  // The names are those of the API's log, so that a request and its run are found together.
  const names = { requestId, automation: slug, runId, attempt };
  let artifacts: AttemptArtifacts | undefined;
  const startedAt = Date.now();
  logger.info({ ...names, status: 'running' }, 'run started');

  let result: AttemptResult | 'interrupted' | undefined =
    signal.reason === CANCELLED ? CANCELLED_RESULT : refuse(run, automation);
  // A worker that was frozen while it read the automation has lost the run, and learns so only later.
  if (automation && !result && !isOver(lease)) {
    log.note(`Attempt ${attempt} starts on worker ${guard.workerId}.`);
    const { timeoutMs = dependencies.defaultTimeoutMs } = automation;
    artifacts = new AttemptArtifacts(dependencies.artifactLimitBytes);
    const context = { run, log, artifacts, timeoutMs, lease, guard };
    result = await settleAttempt(
      (ending) => actions.perform(automation, { ...context, ...ending }),
      timeoutMs,
      signal,
    ).catch((err: Error) => {
      logger.error({ err, ...names }, 'attempt failed unexpectedly');
      return workerError(err);
    });
  }
  // A thawed worker hears that its commands have ended, by its guard, before its own timers notice the time.
  const isLost = signal.reason === LOCK_LOST || isOver(lease);
  // Interrupted work has no outcome, unless it must not be repeated; that of a lost run is its next worker's to tell.
  if (isLost) result = 'interrupted';
  else if (result === 'interrupted') result = outcomeOfInterruption(signal.reason, automation);
  if (result === 'interrupted') {
    const reason = isLost ? LOCK_LOST : String(signal.reason);
    log.end(`Attempt ${attempt} was interrupted: ${reason}.`);
    const durationMs = Date.now() - startedAt;
    logger.warn({ ...names, reason, durationMs }, 'run interrupted');
    // Where Redis does not answer, nothing is gained by waiting for it.
    if (isLost) await withDeadline(log.flush(), LOST_FLUSH_MS).catch(() => undefined);
    else await log.flush();
    return 'interrupted';
  }
  result ??= cancelled('automation_deleted', 'The automation was deleted before the run was executed.');

  await keepArtifacts(dependencies, run, artifacts, log);
  const isRetried = result.mayRetry && !run.isLast;
  const concluded = conclude(result, isRetried, mask, log);
  const { outcome } = concluded;
  const { reason, exitCode, httpStatus, message, detail } = outcome;
  log.end(`Attempt ${attempt} ended: ${message}`);
  const durationMs = Date.now() - startedAt;
  // Over the connection by which the run ends: whoever sees its end, there or in a line, finds its log complete.
  await log.send();
  const status = isRetried ? 'retrying' : outcome.status;
  const ending = { ...names, status, reason, exitCode, httpStatus, durationMs, message, detail };
  void log.flush().then(() => logger.info(ending, isRetried ? 'run retries' : 'run ended'));
  return concluded;
}

/** What is kept of an attempt's end: without secrets, with the last line that a failed one printed. */
function conclude(
  { outcome, mayRetry, result: text }: AttemptResult,
  isRetried: boolean,
  mask: SecretMask,
  log: OutputLog,
): AttemptResult {
  const lastLine = log.endOutputs();
  const own = outcome.detail === undefined ? undefined : mask.text(outcome.detail);
  const detail = hasFailed(outcome) ? (own ?? lastLine) : undefined;
  const ended = {
    outcome: { ...outcome, message: mask.text(outcome.message), ...(detail !== undefined && { detail }) },
    mayRetry,
  };
  // Only the attempt that ends the run tells its result.
  if (text === undefined || isRetried) return ended;
  const kept = withResult(ended, maskResult(text, mask), log);
  if (kept.result === undefined) return kept;
  return { ...kept, outcome: { ...kept.outcome, resultBytes: Buffer.byteLength(kept.result) } };
}

/** Whether the attempt failed by itself. */
function hasFailed({ status, reason }: RunOutcome): boolean {
  return (status === 'failed' && reason !== 'worker_lost') || status === 'timed_out';
}

/**
 * Keeps what an attempt has left, before the run ends, so that a run that has ended has its artifacts. An attempt without
 * artifacts costs nothing, unless an earlier attempt may have some: they are removed, and that is not waited for.
 */
async function keepArtifacts(
  { artifacts: store, retentionSeconds }: ExecutionDependencies,
  run: RunAttempt,
  artifacts: AttemptArtifacts | undefined,
  log: OutputLog,
): Promise<void> {
  // The automation was not executed.
  if (!artifacts) return;
  const list = artifacts.list();
  const isEmpty = list.artifacts.length + list.omittedCount === 0;
  for (const file of list.omitted.slice(0, MAX_NOTED_FILES)) {
    log.note(`Not kept as an artifact: ${describeOmitted(file)}.`);
  }
  const others = list.omittedCount - Math.min(list.omitted.length, MAX_NOTED_FILES);
  if (others > 0) log.note(`Not kept as artifacts: ${others} more files.`);
  if (isEmpty && run.attempt === 1) return;
  const saving = store.save(run, list, artifacts.data(), retentionSeconds);
  if (isEmpty) return void saving.catch(() => undefined);
  await saving.catch((error: Error) => log.note(`The artifacts could not be kept: ${error.message}.`));
}

/** Why a run is not to be executed, if so. */
function refuse(run: RunAttempt, automation: ExecutableAutomation | undefined): AttemptResult | undefined {
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
  automation: ExecutableAutomation | undefined,
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
