import { outcomeSummary, RUN_STATUSES, type Run, shortRunId } from '../../core/run.ts';
import { durationOf } from '../../core/run-duration.ts';
import { visible } from '../../core/visible-text.ts';
import { FAILED, type RunQuery, writeRunQuery } from '../run-query.ts';
import { Status } from './status.tsx';
import { Time } from './time.tsx';

interface RunsProps {
  query: RunQuery;
  runs: readonly Run[];
  /** Where the next page begins, as text of an address. */
  next: string | undefined;
}

/** The list of runs, which the script offers to load again when there are newer ones. */
export function RunsView({ query, runs, next }: RunsProps) {
  const isFirstPage = query.after === '';
  return (
    <>
      <h1>
        Runs
        {isFirstPage && (
          <span
            class="newer"
            role="status"
            data-newer={`/runs/newer${writeRunQuery(query)}`}
            data-newest={newestOf(runs, query.status === FAILED)}
          >
            <a class="chip" href={`/runs${writeRunQuery(query)}`} hidden>
              New runs
            </a>
          </span>
        )}
      </h1>
      <RunFilters query={query} />
      {runs.length === 0 ? (
        <NoRuns query={query} hasNext={next !== undefined} />
      ) : (
        <RunTable runs={runs} hasAutomation={query.automation === ''} isByEnd={query.status === FAILED} />
      )}
      <nav class="pager" aria-label="Pages of the list">
        {!isFirstPage && <a href={`/runs${writeRunQuery({ ...query, after: '' })}`}>Newest</a>}
        {next !== undefined && (
          <a rel="next" href={`/runs${writeRunQuery({ ...query, after: next })}`}>
            {runs.length === 0 ? 'Look further back' : 'Older'}
          </a>
        )}
      </nav>
    </>
  );
}

/** What is newer comes later than this: the id of a run or, in the list of failed runs, a time by `Date.now()`. */
function newestOf(runs: readonly Run[], isByEnd: boolean): string {
  if (isByEnd) return `${runs[0]?.endedAt?.getTime() ?? 0}`;
  return (
    runs
      .map(({ id }) => id)
      .sort()
      .at(-1) ?? ''
  );
}

const STATUS_CHIPS = [
  ['', 'All'],
  ['running', 'Running'],
  ['queued', 'Queued'],
  [FAILED, 'Failed or timed out'],
] as const;

function RunFilters({ query }: { query: RunQuery }) {
  const { automation, status, since, until } = query;
  return (
    <>
      <nav class="filters" aria-label="Quick filters">
        {STATUS_CHIPS.map(([value, text]) => (
          <a
            key={value}
            class="chip"
            href={`/runs${writeRunQuery({ ...query, status: value, after: '' })}`}
            aria-current={status === value ? 'true' : undefined}
          >
            {text}
          </a>
        ))}
      </nav>
      <form class="filters fields" action="/runs">
        <label>
          Automation
          <input name="automation" value={automation} maxLength={64} autocomplete="off" spellcheck={false} />
        </label>
        <label>
          Status
          <select name="status">
            <option value="">any</option>
            <option value={FAILED} selected={status === FAILED}>
              failed or timed out
            </option>
            {RUN_STATUSES.map((each) => (
              <option key={each} value={each} selected={status === each}>
                {each.replace('_', ' ')}
              </option>
            ))}
          </select>
        </label>
        <label>
          From
          <input name="since" value={since} placeholder="2h, 2026-01-31T18:00Z" />
        </label>
        <label>
          To
          <input name="until" value={until} placeholder="1h" />
        </label>
        <button class="btn" type="submit">
          Filter
        </button>
      </form>
    </>
  );
}

interface RunTableProps {
  runs: readonly Run[];
  /** Whether a column names the automation. */
  hasAutomation: boolean;
  /** Whether the time is that of the end, not of the acceptance. */
  isByEnd?: boolean;
}

/** Runs as rows, each with a link to its page. */
function RunTable({ runs, hasAutomation, isByEnd = false }: RunTableProps) {
  return (
    <div class="table">
      <table class="runs stack">
        <thead>
          <tr>
            <th scope="col">Run</th>
            <th scope="col">Status</th>
            {hasAutomation && <th scope="col">Automation</th>}
            <th scope="col">{isByEnd ? 'Ended' : 'Accepted'}</th>
            <th scope="col" class="num">
              Took
            </th>
            <th scope="col">Outcome</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              <td>
                <a class="mono link" href={`/runs/${run.id}`}>
                  {shortRunId(run.id)}
                </a>
              </td>
              <td>
                <Status status={run.status} />
              </td>
              {hasAutomation && (
                <td>
                  <a href={`/automations/${run.automation}`}>{run.automation}</a>
                </td>
              )}
              <td>
                <Time at={(isByEnd && run.endedAt) || run.acceptedAt} />
              </td>
              <td class="num">{durationOf(run) ?? ''}</td>
              <td class="what outcome">{outcomeOf(run)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Nothing of a success, which has nothing more to tell. */
function outcomeOf({ outcome, status }: Run): string {
  return outcome && status !== 'succeeded' ? visible(outcomeSummary(outcome)) : '';
}

function NoRuns({ query, hasNext }: { query: RunQuery; hasNext: boolean }) {
  if (hasNext) return <p class="empty">None of the newest runs is like that. Older ones may be.</p>;
  const isFiltered =
    query.automation !== '' || query.status !== '' || query.since !== '' || query.until !== '';
  if (query.after !== '') return <p class="empty">There are no older runs.</p>;
  return isFiltered ? (
    <p class="empty">
      There are no such runs.{' '}
      <a class="link" href="/runs">
        Show all runs
      </a>
    </p>
  ) : (
    <p class="empty">
      No run is kept yet. An{' '}
      <a class="link" href="/automations">
        automation
      </a>{' '}
      starts one when it is called, or by “Run now” on its page.
    </p>
  );
}
