import { setTimeout as sleep } from 'node:timers/promises';
import { isTerminal, type Run, type TerminalRunStatus } from '../core/run.ts';
import type { Store } from '../store/store.ts';
import { type CommandContext, withStore } from './context.ts';
import { parseDuration } from './durations.ts';
import type { OrcCommand } from './orc-command.ts';
import { CommandError, type Output } from './output.ts';

/** How often a run is polled, in milliseconds. */
const POLL_MS = 200;

/** By then a live worker has ended a cancelled run, in milliseconds: its command gets 5 s between TERM and KILL. */
const CANCEL_DEADLINE_MS = 15_000;

/** How long Redis may take to accept a run, in milliseconds. */
const ACCEPT_DEADLINE_MS = 5000;

/** Exit codes of commands that wait for a run; 2 is a usage error everywhere. */
const EXIT_CODES: Readonly<Record<TerminalRunStatus, number>> = {
  succeeded: 0,
  failed: 1,
  timed_out: 3,
  cancelled: 4,
};
const NOT_ENDED = 5;

const EXIT_CODES_HELP =
  '0 succeeded, 1 failed, 2 usage error, 3 timed out, 4 cancelled, 5 not ended within --timeout';

interface WaitOptions {
  timeout?: string;
  json?: boolean;
}

/** Adds `orc runs watch | cancel | retry`. */
export function addRunControl(group: OrcCommand, context: CommandContext): void {
  const { output } = context;

  group
    .command('watch')
    .description('wait for a run to end; the exit code tells its status')
    .argument('<runId>', 'the run')
    .option('--timeout <duration>', 'stop waiting after this time, such as 10m (default: never)')
    .option('--json', 'print the run as JSON when it has ended')
    .moreHelp({
      exitCodes: EXIT_CODES_HELP,
      examples: ['orc runs watch run_01a1fd79-2020-716f-b65b-e40f10ea5e54 --timeout 10m'],
    })
    .action(async (runId: string, options: WaitOptions) => {
      await withStore(context, (store) => watch(store, runId, options, output));
    });

  group
    .command('cancel')
    .description('cancel a run: a waiting run never starts, an executing one is ended on its worker')
    .argument('<runId>', 'the run')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: 'Its processes get TERM and, 5 seconds later, KILL. The command waits until the run has ended.',
      examples: ['orc runs cancel run_01a1fd79-2020-716f-b65b-e40f10ea5e54'],
    })
    .action(async (runId: string, { json }: { json?: boolean }) => {
      const run = await withStore(context, (store) => cancel(store, runId));
      if (json) output.json(run);
      else output.line(`The run ${runId} is cancelled.`);
    });

  group
    .command('retry')
    .description('start a new run with the payload of one that has ended')
    .argument('<runId>', 'the run')
    .option('--wait', 'wait for the new run to end; the exit code tells its status')
    .option('--timeout <duration>', 'with --wait: stop waiting after this time (default: never)')
    .option('--json', 'print JSON')
    .moreHelp({
      exitCodes: `with --wait: ${EXIT_CODES_HELP}`,
      examples: [
        'orc runs retry run_01a1fd79-2020-716f-b65b-e40f10ea5e54',
        'orc runs retry run_01a1fd79-2020-716f-b65b-e40f10ea5e54 --wait --timeout 10m',
      ],
    })
    .action(async (runId: string, options: WaitOptions & { wait?: boolean }) => {
      await withStore(context, async (store) => {
        const newId = await retry(store, runId, context.config().MAX_QUEUED_RUNS);
        if (options.wait) {
          output.err(`${newId} repeats ${runId}\n`);
          return watch(store, newId, options, output);
        }
        if (options.json) output.json({ runId: newId, status: 'queued', retryOf: runId });
        else output.line(newId);
      });
    });
}

/** @throws CommandError when there is no such run */
export async function getRun(store: Store, runId: string): Promise<Run> {
  const run = await store.runs.get(runId);
  if (!run) {
    throw new CommandError(
      `There is no run ${JSON.stringify(runId)}. Ended runs are kept for RUN_RETENTION_DAYS. The newest: orc runs list`,
    );
  }
  return run;
}

/** @throws CommandError with the exit code of the run's status, unless it succeeded */
async function watch(store: Store, runId: string, options: WaitOptions, output: Output): Promise<void> {
  const { timeout, json = false } = options;
  const deadline = timeout === undefined ? Number.POSITIVE_INFINITY : Date.now() + parseDuration(timeout);
  let shown = '';
  for (;;) {
    const run = await getRun(store, runId);
    if (isTerminal(run.status)) return conclude(run, run.status, json, output);
    const step = describeStep(run);
    if (step !== shown) output.err(`${step}\n`);
    shown = step;
    if (Date.now() >= deadline) {
      throw new CommandError(`${runId} has not ended after ${timeout}: it is ${run.status}.`, {
        exitCode: NOT_ENDED,
      });
    }
    await sleep(Math.min(POLL_MS, deadline - Date.now()));
  }
}

function conclude(run: Run, status: TerminalRunStatus, json: boolean, output: Output): void {
  const ending = `${run.id} ${status}: ${run.outcome?.message}`;
  if (json) output.json(run);
  if (status !== 'succeeded') throw new CommandError(ending, { exitCode: EXIT_CODES[status] });
  if (!json) output.line(ending);
}

function describeStep({ status, attempt, worker }: Run): string {
  if (status === 'running') return `running, attempt ${attempt} on ${worker}`;
  return status === 'retrying' ? `attempt ${attempt} failed, the next one follows` : status;
}

async function cancel(store: Store, runId: string): Promise<Run> {
  const deadline = Date.now() + CANCEL_DEADLINE_MS;
  for (;;) {
    // Repeated, because an executing run may be waiting again a moment later.
    const result = await store.runs.cancel(runId);
    const run = await getRun(store, runId);
    if (isTerminal(run.status)) {
      if (run.status === 'cancelled') return run;
      throw new CommandError(`The run ${runId} ended before it could be cancelled: ${run.status}.`);
    }
    if (Date.now() > deadline) {
      throw new CommandError(
        `The run ${runId} is being cancelled, but worker ${run.worker} has not ended it yet (${result}). If that worker is dead, another one ends it within a minute. See: orc runs watch ${runId}`,
      );
    }
    await sleep(POLL_MS);
  }
}

async function retry(store: Store, runId: string, maxQueuedRuns: number): Promise<string> {
  const { automation: slug, status } = await getRun(store, runId);
  const opened = await store.automations.open(slug);
  if (opened.status === 'rejected') {
    throw new CommandError(`The automation ${slug} is deleted; its runs cannot be repeated.`);
  }
  if (opened.status === 'disabled') {
    throw new CommandError(`The automation ${slug} is disabled. First: orc automations enable ${slug}`);
  }
  const limits = { endsAt: Date.now() + ACCEPT_DEADLINE_MS, maxQueuedRuns };
  const result = await store.runs.retry(runId, opened.automation, limits);
  switch (result.status) {
    case 'accepted':
      return result.runId;
    case 'not_ended':
      throw new CommandError(
        `The run ${runId} is ${status}. Only an ended run can be repeated; to end it: orc runs cancel ${runId}`,
      );
    case 'full':
      throw new CommandError(
        `The queue is full: ${maxQueuedRuns} runs wait (MAX_QUEUED_RUNS). Add workers, or try again later. See: orc status`,
      );
    default:
      throw new CommandError(
        `The automation ${slug} was changed at the same time (${result.status}). Try again.`,
      );
  }
}
