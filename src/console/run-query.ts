import { isSlug } from '../core/automation.ts';
import { parseTime } from '../core/durations.ts';
import { InputError } from '../core/input-error.ts';
import { RUN_STATUSES, type RunStatus } from '../core/run.ts';
import type { Period, RunCursor } from '../store/run-index.ts';
import type { RunFilter } from '../store/runs.ts';

/** Which runs a page shows, as its address says it. */
export interface RunQuery {
  automation: string;
  /** A status, or {@link FAILED}. */
  status: RunStatus | typeof FAILED | '';
  /** As people type times: see `parseTime`. */
  since: string;
  until: string;
  /** Where the page begins: `<runId>` or `<runId>,<end in milliseconds>`. */
  after: string;
}

/** Shows runs that failed or timed out, the latest end first, as `--failed` of the command line does. */
export const FAILED = 'any-failure';

const CURSOR = /^(run_[0-9a-f-]{36})(?:,(\d{1,15}))?$/;

/** What an address says; what it does not say is empty. */
export function readRunQuery(query: URLSearchParams): RunQuery {
  const get = (name: string) => (query.get(name) ?? '').trim();
  return {
    automation: get('automation'),
    status: get('status') as RunQuery['status'],
    since: get('since'),
    until: get('until'),
    after: get('after'),
  };
}

/** The part of an address that says it, with `?`; empty for all runs. */
export function writeRunQuery(query: Partial<RunQuery>): string {
  const said = Object.entries(query).filter(([, value]) => value !== '');
  return said.length === 0 ? '' : `?${new URLSearchParams(said)}`;
}

/**
 * What a query asks for.
 *
 * @throws InputError
 */
export function runFilterOf(query: RunQuery, limit: number): { filter: RunFilter; after?: RunCursor } {
  const { automation, status } = query;
  if (automation !== '' && !isSlug(automation)) {
    throw new InputError(`'${automation}' is not the name of an automation. Write its slug, such as deploy.`);
  }
  const failed = status === FAILED;
  if (status !== '' && !failed && !RUN_STATUSES.includes(status)) {
    throw new InputError(`'${status}' is not a status. Use one of: ${RUN_STATUSES.join(', ')}.`);
  }
  const filter: RunFilter = { limit, failed, ...periodOf(query) };
  if (automation !== '') filter.automation = automation;
  if (status !== '' && !failed) filter.statuses = [status];
  const after = cursorOf(query.after, failed);
  return after ? { filter, after } : { filter };
}

function periodOf({ since: from, until: to }: RunQuery): Period {
  const now = Date.now();
  const since = from === '' ? undefined : parseTime(from, now);
  const until = to === '' ? undefined : parseTime(to, now);
  if (since && until && since >= until) throw new InputError('From must be earlier than to.');
  return { since, until };
}

function cursorOf(text: string, failed: boolean): RunCursor | undefined {
  if (text === '') return undefined;
  const [, runId, endedAt] = CURSOR.exec(text) ?? [];
  if (runId === undefined || (failed && endedAt === undefined)) {
    throw new InputError('The link to this page of the list is incomplete. Begin with its first page.');
  }
  return { runId, endedAt: endedAt === undefined ? undefined : new Date(Number(endedAt)) };
}

/** Where the next page begins, for an address. */
export function cursorText({ runId, endedAt }: RunCursor): string {
  return endedAt ? `${runId},${endedAt.getTime()}` : runId;
}
