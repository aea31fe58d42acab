import { formatAge } from '../core/age.ts';
import type { Run } from '../core/run.ts';
import type { Store } from '../store/store.ts';
import { unknownSlug } from './automations.ts';
import type { OrcCommand } from './orc-command.ts';
import { CommandError, UsageError } from './output.ts';

/** The beginning of a run's id, with or without `run_`. */
const PREFIX = /^(?:run_)?([0-9a-f-]{1,36})$/;

/** `run_` and a UUID. */
const FULL_LENGTH = 40;

/** Runs that are named where a beginning fits several. */
const MAX_CANDIDATES = 5;

export const RUN_REFERENCE_HELP = `A run is named by its id, or by any beginning of it that only one run has, with or without run_.`;

/** The options that {@link addRunReference} adds. */
export interface RunReferenceOptions {
  last?: string | true;
}

/** Lets a command take one run: by its id, the beginning of its id, or as the latest one. */
export function addRunReference(command: OrcCommand): OrcCommand {
  return command
    .argument('[runId]', 'the run: its id, or the beginning of its id')
    .option('--last [slug]', 'the latest run, of this automation or of all, instead of an id');
}

/**
 * The id of the run that a command was given.
 *
 * @throws UsageError when it was given none, or two
 * @throws CommandError when there is no such run, or several
 */
export async function findRunId(
  store: Store,
  reference: string | undefined,
  { last }: RunReferenceOptions,
): Promise<string> {
  if (reference !== undefined && last !== undefined) {
    throw new UsageError(`Give either a run's id or --last, not both.`);
  }
  if (last !== undefined) return latestRun(store, last === true ? undefined : last);
  if (reference === undefined)
    throw new UsageError("missing required argument 'runId', or --last. See --help.");
  const [, prefix] = PREFIX.exec(reference.toLowerCase()) ?? [];
  if (prefix === undefined) throw noSuchRun(reference);
  const beginning = `run_${prefix}`;
  if (beginning.length === FULL_LENGTH) return beginning;
  const found = await store.index.startingWith(beginning, MAX_CANDIDATES + 1);
  const [runId] = found;
  if (runId === undefined) throw noSuchRun(reference);
  if (found.length > 1) throw await ambiguous(store, reference, found);
  return runId;
}

/** A run as programs see it: the answer to a trigger calls its id `runId`. */
export function runForPrograms(run: Run): Run & { runId: string } {
  return { runId: run.id, ...run };
}

export function noSuchRun(reference: string): CommandError {
  return new CommandError(`There is no run ${JSON.stringify(reference)}.`, {
    error: 'not_found',
    hint: 'Ended runs are kept for RUN_RETENTION_DAYS. The newest: orc runs list',
  });
}

async function latestRun(store: Store, slug: string | undefined): Promise<string> {
  const runId = await store.index.newest(slug);
  if (runId !== undefined) return runId;
  if (slug !== undefined && !(await store.automations.get(slug))) throw await unknownSlug(store, slug);
  throw new CommandError(slug === undefined ? 'There are no runs.' : `There are no runs of ${slug}.`, {
    error: 'not_found',
    hint: slug === undefined ? 'What can be started: orc automations list' : `Start one: orc trigger ${slug}`,
  });
}

async function ambiguous(store: Store, reference: string, runIds: readonly string[]): Promise<CommandError> {
  const named = runIds.slice(0, MAX_CANDIDATES);
  const runs = await Promise.all(named.map((runId) => store.runs.get(runId)));
  const lines = runs.flatMap((run) =>
    run ? [`\n  ${run.id}  ${run.automation}  ${run.status}  ${formatAge(run.acceptedAt)}`] : [],
  );
  const more = runIds.length > named.length ? '\n  and more' : '';
  return new CommandError(`Several runs begin with ${JSON.stringify(reference)}:${lines.join('')}${more}\n`, {
    error: 'ambiguous_run_id',
    hint: 'Write more of the id.',
  });
}
