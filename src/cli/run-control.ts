import { setTimeout as sleep } from 'node:timers/promises';
import { parseDuration } from '../core/durations.ts';
import {
  isTerminal,
  outcomeLine,
  RUN_STATUSES,
  type Run,
  type RunStatus,
  type TerminalRunStatus,
} from '../core/run.ts';
import { describeObstacle, obstacleOf } from '../ops/waiting-run.ts';
import type { AcceptLimits } from '../store/run-acceptance.ts';
import type { Store } from '../store/store.ts';
import { actOnRuns, type BulkAction, type BulkOptions, endedRuns, isBulk, openRuns } from './bulk-runs.ts';
import { type CommandContext, withStore } from './context.ts';
import type { OrcCommand } from './orc-command.ts';
import { CommandError, type Output, UsageError } from './output.ts';
import { addRunFilters, RUN_FILTERS_HELP } from './run-filters.ts';
import {
  addRunReference,
  findRunId,
  noSuchRun,
  type RunReferenceOptions,
  runForPrograms,
} from './run-reference.ts';

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

export const WAIT_EXIT_CODES_HELP =
  '0 succeeded, 1 failed, 2 usage error, 3 timed out, 4 cancelled, 5 not ended within --timeout';

interface WaitOptions extends RunReferenceOptions {
  timeout?: string | undefined;
  json?: boolean;
}

/** Adds `orc runs watch | cancel | retry`. */
export function addRunControl(group: OrcCommand, context: CommandContext): void {
  const { output } = context;

  addRunReference(group.command('watch').description('wait for a run to end; the exit code tells its status'))
    .option('--timeout <duration>', 'stop waiting after this time, such as 10m (default: never)')
    .option('--json', 'print the run as JSON when it has ended')
    .moreHelp({
      exitCodes: WAIT_EXIT_CODES_HELP,
      examples: [
        'orc runs watch run_01a1fd79-2020-716f-b65b-e40f10ea5e54 --timeout 10m',
        'orc runs watch --last deploy',
      ],
    })
    .action(async (reference: string | undefined, options: WaitOptions) => {
      await withStore(context, async (store) => {
        await watch(store, await findRunId(store, reference, options), options, output);
      });
    });

  addBulk(
    addRunReference(
      group
        .command('cancel')
        .description(
          'cancel a run, or all that match: a waiting run never starts, an executing one is ended',
        ),
    ),
    RUN_STATUSES.filter((status) => !isTerminal(status)),
  )
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `Its processes get TERM and, 5 seconds later, KILL. For one run, the command waits until it has ended; for many, it says
how many are still being ended.

${BULK_HELP}`,
      examples: [
        'orc runs cancel run_01a1fd79-2020-716f-b65b-e40f10ea5e54',
        'orc runs cancel --automation deploy --status queued',
      ],
    })
    .action(async (reference: string | undefined, options: RunReferenceOptions & BulkOptions) => {
      await withStore(context, async (store) => {
        if (isBulk(options)) {
          refuseBoth(reference, options);
          return actOnRuns(store, openRuns(options), CANCEL_ALL, options, context);
        }
        const run = await cancel(store, await findRunId(store, reference, options));
        if (options.json) output.json(runForPrograms(run));
        else output.line(`The run ${run.id} is cancelled.`);
      });
    });

  addBulk(
    addRunReference(
      group
        .command('retry')
        .description('start a new run with the payload of one that has ended, or one for each that matches'),
    ),
    RUN_STATUSES.filter(isTerminal),
  )
    .option('--wait', 'wait for the new run to end; the exit code tells its status')
    .option('--timeout <duration>', 'with --wait: stop waiting after this time (default: never)')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: BULK_HELP,
      exitCodes: `0 started, 1 failure, 2 usage error; with --wait: ${WAIT_EXIT_CODES_HELP}`,
      examples: [
        'orc runs retry run_01a1fd79-2020-716f-b65b-e40f10ea5e54 --wait --timeout 10m',
        'orc runs retry --automation deploy --failed --since 1h',
      ],
    })
    .action(
      async (reference: string | undefined, options: WaitOptions & BulkOptions & { wait?: boolean }) => {
        await withStore(context, async (store) => {
          if (isBulk(options)) {
            refuseBoth(reference, options);
            if (options.wait) throw new UsageError('--wait is for one run.');
            const repeat = retryAll(context.config().MAX_QUEUED_RUNS);
            return actOnRuns(store, endedRuns(options), repeat, options, context);
          }
          const runId = await findRunId(store, reference, options);
          const newId = await retry(store, runId, context.config().MAX_QUEUED_RUNS);
          if (options.wait) {
            output.err(`${newId} repeats ${runId}\n`);
            return watch(store, newId, options, output);
          }
          if (options.json) output.json({ runId: newId, status: 'queued', retryOf: runId });
          else output.line(newId);
        });
      },
    );
}

const BULK_HELP = `Instead of one run, it takes all that match the filters of \`orc runs list\`, up to 10,000. It shows how many and asks;
in a script, --yes answers. It goes on after a failure.

${RUN_FILTERS_HELP}`;

/** Adds the options that choose many runs. */
function addBulk(command: OrcCommand, statuses: readonly RunStatus[]): OrcCommand {
  return addRunFilters(command, statuses).option('-y, --yes', 'with a filter: do not ask');
}

/** @throws UsageError */
function refuseBoth(reference: string | undefined, { last }: RunReferenceOptions): void {
  if (reference === undefined && last === undefined) return;
  throw new UsageError('Name one run, or choose runs by filters such as --automation, not both.');
}

/** A worker ends an executing run a little later. */
const CANCEL_ALL: BulkAction = {
  verb: 'cancel',
  // A place in a lane that becomes free must not start a run that is about to be cancelled.
  isOldestFirst: false,
  act: async (store, runId) => {
    const words = {
      cancelled: 'cancelled',
      requested: 'being ended by their workers',
      ended: 'had ended',
      not_found: 'gone',
    };
    return { did: words[await store.runs.cancel(runId)] };
  },
};

function retryAll(maxQueuedRuns: number): BulkAction {
  return {
    verb: 'retry',
    isOldestFirst: true,
    act: async (store, runId) => ({ did: 'repeated', runId: await retry(store, runId, maxQueuedRuns) }),
  };
}

/** @throws CommandError when there is no such run */
export async function getRun(store: Store, runId: string): Promise<Run> {
  const run = await store.runs.get(runId);
  if (!run) throw noSuchRun(runId);
  return run;
}

/**
 * Waits for a run to end and prints how it did.
 *
 * @param options.endsAt when the timeout is over, by `Date.now()`; default: counted from now on
 * @param options.isRemark whether the end goes to standard error
 * @throws CommandError with the exit code of the run's status, unless it succeeded
 */
export async function watch(
  store: Store,
  runId: string,
  options: WaitOptions & { endsAt?: number | undefined; isRemark?: boolean },
  output: Output,
): Promise<void> {
  const { timeout } = options;
  const ownEnd = timeout === undefined ? Number.POSITIVE_INFINITY : Date.now() + parseDuration(timeout);
  const deadline = options.endsAt ?? ownEnd;
  let shown = '';
  for (;;) {
    const run = await getRun(store, runId);
    if (isTerminal(run.status)) return conclude(run, run.status, options, output);
    const step = describeStep(run);
    if (step !== shown) {
      const obstacle = await obstacleOf(store, run);
      output.err(obstacle ? `${step}: ${describeObstacle(obstacle)}\n` : `${step}\n`);
    }
    shown = step;
    if (Date.now() >= deadline) {
      throw new CommandError(`${runId} has not ended after ${timeout}: it is ${run.status}.`, {
        exitCode: NOT_ENDED,
        error: 'not_ended',
        hint: `See: orc runs show ${runId}`,
      });
    }
    await sleep(Math.min(POLL_MS, deadline - Date.now()));
  }
}

function conclude(
  run: Run,
  status: TerminalRunStatus,
  { json = false, isRemark = false }: { json?: boolean; isRemark?: boolean },
  output: Output,
): void {
  const ending = `${run.id} ${status}: ${run.outcome && outcomeLine(run.outcome)}`;
  if (json) output.json(runForPrograms(run));
  if (status !== 'succeeded') {
    throw new CommandError(ending, {
      exitCode: EXIT_CODES[status],
      error: `run_${status}`,
      hint: `See: orc runs logs ${run.id}`,
    });
  }
  if (isRemark) output.err(`${ending}\n`);
  else if (!json) output.line(ending);
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
    const { workersAlive, workersDraining } = await store.workers.alive();
    const isHopeless = workersAlive + workersDraining.length === 0;
    if (isHopeless || Date.now() > deadline) {
      const next = isHopeless
        ? 'No worker is alive; the next one ends it. Start one: orc worker'
        : `If that worker is dead, another one ends it within a minute. See: orc runs watch ${runId}`;
      throw new CommandError(
        `The run ${runId} is being cancelled, but worker ${run.worker} has not ended it yet (${result}). ${next}`,
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
    throw disabledError(slug);
  }
  const result = await store.runs.retry(runId, opened.automation, acceptLimits(maxQueuedRuns));
  switch (result.status) {
    case 'accepted':
      return result.runId;
    case 'not_ended':
      throw new CommandError(
        `The run ${runId} is ${status}. Only an ended run can be repeated; to end it: orc runs cancel ${runId}`,
      );
    case 'invalid':
      throw new CommandError(
        `The payload of ${runId} does not fit the schema that ${slug} has now: ${result.problem}. Start a new run with another payload, or change the schema: orc automations set ${slug} --schema <file>`,
      );
    case 'full':
      throw fullError(maxQueuedRuns);
    default:
      throw new CommandError(
        `The automation ${slug} was changed at the same time (${result.status}). Try again.`,
      );
  }
}

/** Limits for a run that an operator starts. */
export function acceptLimits(maxQueuedRuns: number): AcceptLimits {
  return { endsAt: Date.now() + ACCEPT_DEADLINE_MS, maxQueuedRuns };
}

export function disabledError(slug: string): CommandError {
  return new CommandError(`The automation ${slug} is disabled. First: orc automations enable ${slug}`);
}

export function fullError(maxQueuedRuns: number): CommandError {
  return new CommandError(
    `The queue is full: ${maxQueuedRuns} runs wait (MAX_QUEUED_RUNS). Add workers, or try again later. See: orc status`,
  );
}
