import { createInterface } from 'node:readline/promises';
import { isTerminal, RUN_STATUSES } from '../core/run.ts';
import type { RunFilter } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import { unknownSlug } from './automations.ts';
import type { CommandContext } from './context.ts';
import { CommandError, UsageError } from './output.ts';
import { type RunFilterOptions, runFilterOf } from './run-filters.ts';

/** More runs than this are refused: who means them can say so in parts. */
const MAX_RUNS = 10_000;

/** So many failures are named one by one. */
const MAX_SHOWN_FAILURES = 5;

export interface BulkOptions extends RunFilterOptions {
  yes?: boolean;
  json?: boolean;
}

/** What is done with each of many runs. */
export interface BulkAction {
  /** `cancel` or `retry`. */
  verb: string;
  /** Does it with one run. @returns what became of it, in a word for the summary; an error is one failure */
  act(store: Store, runId: string): Promise<{ did: string; runId?: string }>;
  /** Whether the runs are taken in the order in which they were accepted. */
  isOldestFirst: boolean;
}

/** Whether a command line chooses runs by what they have in common. */
export function isBulk({ automation, status, failed, since, until }: RunFilterOptions): boolean {
  return [automation, status, failed, since, until].some((value) => value !== undefined);
}

/** The runs that have not ended. @throws UsageError */
export function openRuns(options: RunFilterOptions): Omit<RunFilter, 'limit'> {
  const filter = runFilterOf(options);
  if (filter.failed || filter.statuses?.some(isTerminal)) {
    throw new UsageError(
      'Runs that have ended cannot be cancelled. Choose others: --status queued,running,retrying',
    );
  }
  return { ...filter, statuses: filter.statuses ?? RUN_STATUSES.filter((status) => !isTerminal(status)) };
}

/** Runs that have ended. @throws UsageError unless the command line says how */
export function endedRuns(options: RunFilterOptions): Omit<RunFilter, 'limit'> {
  const filter = runFilterOf(options);
  if (!filter.failed && !filter.statuses?.every(isTerminal)) {
    throw new UsageError(
      'Say which runs to repeat: --failed, or those of a status, such as --status cancelled',
    );
  }
  return filter;
}

/**
 * Does the same with every run that matches, after showing how many and asking. The runs are chosen before the first is touched.
 *
 * @throws CommandError when nothing was done, or something failed
 */
export async function actOnRuns(
  store: Store,
  filter: Omit<RunFilter, 'limit'>,
  { verb, act, isOldestFirst }: BulkAction,
  { yes = false, json = false }: BulkOptions,
  context: CommandContext,
): Promise<void> {
  const { output } = context;
  const runIds = await chosen(store, filter, verb);
  const runs = runIds.length === 1 ? '1 run' : `${runIds.length} runs`;
  if (runIds.length > 0 && !yes && !(await isConfirmed(`${verb} ${runs}?`, runs, context))) {
    throw new CommandError('Nothing was done.');
  }
  const done: { runId: string; did: string; newRunId?: string }[] = [];
  const failed: { runId: string; error: string }[] = [];
  for (const runId of isOldestFirst ? runIds.toSorted() : runIds) {
    try {
      const { did, runId: newRunId } = await act(store, runId);
      done.push({ runId, did, ...(newRunId !== undefined && { newRunId }) });
    } catch (error) {
      failed.push({ runId, error: (error as Error).message });
    }
  }
  if (json) output.json({ matched: runIds.length, runs: done, failed });
  else output.line(runIds.length === 0 ? 'There are no such runs.' : `${summaryOf(done, failed.length)}.`);
  if (failed.length === 0) return;
  const shown = failed.slice(0, MAX_SHOWN_FAILURES).map(({ runId, error }) => `${runId}: ${error}`);
  const others = failed.length > shown.length ? [`… and ${failed.length - shown.length} more: --json`] : [];
  throw new CommandError([`${failed.length} of ${runs} failed.`, ...shown, ...others].join('\n'));
}

async function chosen(store: Store, filter: Omit<RunFilter, 'limit'>, verb: string): Promise<string[]> {
  const runIds: string[] = [];
  for await (const page of store.runs.pages({ ...filter, limit: MAX_RUNS + 1 })) {
    runIds.push(...page.map(({ id }) => id));
  }
  if (runIds.length > MAX_RUNS) {
    throw new CommandError(
      `More than ${MAX_RUNS} runs match, and nothing was done. To ${verb} them in parts: --since and --until`,
    );
  }
  const { automation } = filter;
  if (runIds.length === 0 && automation !== undefined && !(await store.automations.get(automation))) {
    throw await unknownSlug(store, automation);
  }
  return [...new Set(runIds)];
}

/** @throws UsageError where nobody can be asked */
async function isConfirmed(
  question: string,
  runs: string,
  { stdin, stdout }: CommandContext,
): Promise<boolean> {
  const input = stdin();
  if (!input.isTTY || !stdout.isTTY) {
    throw new UsageError(
      `${runs} would be changed, and nothing was done. To go on without a question: --yes`,
    );
  }
  const terminal = createInterface({ input, output: stdout });
  try {
    const asked = question.charAt(0).toUpperCase() + question.slice(1);
    return /^y(es)?$/i.test((await terminal.question(`${asked} [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}

/** `36 cancelled, 2 had ended, 1 failed` */
function summaryOf(done: readonly { did: string }[], failures: number): string {
  const counts = new Map<string, number>();
  for (const { did } of done) counts.set(did, (counts.get(did) ?? 0) + 1);
  const parts = [...counts].map(([did, count]) => `${count} ${did}`);
  return [...parts, ...(failures > 0 ? [`${failures} failed`] : [])].join(', ');
}
