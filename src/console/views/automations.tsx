import { actionTypeOf } from '../../core/actions/actions.ts';
import type { Automation } from '../../core/automation.ts';
import { formatRate, writeDuration } from '../../core/durations.ts';
import { visible } from '../../core/visible-text.ts';
import { automationState } from '../../ops/automation-facts.ts';
import type { RecentRun } from '../../store/recent-runs.ts';
import { acceptedAtOf } from '../../store/run-id.ts';
import { formatCount } from './count.ts';
import { State } from './state.tsx';
import { Strip } from './strip.tsx';
import { Time } from './time.tsx';

export const FILTERS = ['all', 'failing', 'disabled', 'paused'] as const;
export type FilterName = (typeof FILTERS)[number];

/** Runs in a strip. */
export const STRIP_LENGTH = 12;

export interface AutomationRow {
  automation: Automation;
  recent: RecentRun[];
  failed: number;
  open: number;
  running: number;
}

export interface AutomationsProps {
  rows: readonly AutomationRow[];
  filter: FilterName;
  /** What the slugs begin with. */
  search: string;
  counts: Record<FilterName, number>;
  /** Slug behind which the next page begins. */
  next: string | undefined;
  isFirst: boolean;
  isAdmin: boolean;
}

export function Automations({ rows, filter, search, counts, next, isFirst, isAdmin }: AutomationsProps) {
  return (
    <>
      <h1>
        Automations
        {isAdmin && (
          <span class="push">
            {counts.all > 0 && (
              <a class="btn" href="/automations.yaml" download>
                All as YAML
              </a>
            )}
            <a class="btn main" href="/new-automation">
              New automation
            </a>
          </span>
        )}
      </h1>
      {counts.all > 0 && (
        <div class="filters">
          {FILTERS.map((name) => (
            <a
              key={name}
              class="chip"
              href={addressOf(name, search)}
              aria-current={name === filter ? 'true' : undefined}
            >
              {name.charAt(0).toUpperCase() + name.slice(1)} {formatCount(counts[name])}
            </a>
          ))}
          <form class="find" method="get" action="/automations">
            {filter !== 'all' && <input type="hidden" name="filter" value={filter} />}
            <input
              type="search"
              name="search"
              value={search}
              placeholder="Slug begins with"
              aria-label="Slug begins with"
            />
            <button class="btn" type="submit">
              Find
            </button>
          </form>
        </div>
      )}
      {rows.length === 0 ? <Nothing {...{ filter, search, counts, isAdmin }} /> : <Rows rows={rows} />}
      <p class="pages">
        {isFirst ? (
          <span />
        ) : (
          <a class="btn" href={addressOf(filter, search)}>
            First page
          </a>
        )}
        {next !== undefined && (
          <a class="btn" href={addressOf(filter, search, next)}>
            Next page
          </a>
        )}
      </p>
    </>
  );
}

/** @param after the slug behind which the page begins */
function addressOf(filter: FilterName, search: string, after = ''): string {
  const query = new URLSearchParams();
  if (filter !== 'all') query.set('filter', filter);
  if (search !== '') query.set('search', search);
  if (after !== '') query.set('after', after);
  return query.size === 0 ? '/automations' : `/automations?${query}`;
}

function Nothing({
  filter,
  search,
  counts,
  isAdmin,
}: Pick<AutomationsProps, 'filter' | 'search' | 'counts' | 'isAdmin'>) {
  if (counts.all === 0) {
    return (
      <p class="empty">
        There is no automation yet: an automation is what callers can start over HTTP.{' '}
        {isAdmin ? (
          <a class="link" href="/new-automation">
            Create the first one
          </a>
        ) : (
          'An admin creates the first one.'
        )}
      </p>
    );
  }
  const of = filter === 'all' ? 'automation' : `${filter} automation`;
  return (
    <p class="empty">
      No {of}
      {search !== '' && ` has a slug that begins with “${visible(search)}”`}.{' '}
      <a class="link" href="/automations">
        Show all {formatCount(counts.all)}
      </a>
    </p>
  );
}

function Rows({ rows }: { rows: readonly AutomationRow[] }) {
  return (
    <table class="stack">
      <thead>
        <tr>
          <th>Automation</th>
          <th>State</th>
          <th>Action</th>
          <th>Last runs</th>
          <th class="num">Failed, 1 h</th>
          <th class="num">Last run</th>
          <th class="num">Now</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <Row key={row.automation.slug} {...row} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ automation, recent, failed, open, running }: AutomationRow) {
  const { slug, name, action } = automation;
  const type = actionTypeOf(action);
  const newest = recent.at(-1);
  return (
    <tr>
      <td class="slug">
        <a href={`/automations/${slug}`}>
          <b>{slug}</b>
        </a>
        {name !== '' && <small>{visible(name)}</small>}
      </td>
      <td>
        <State state={automationState(automation)} />
      </td>
      <td class="what">
        <span class="mono">{visible(type.describe(action)[0][1])}</span>
        <small>{limitsOf(automation)}</small>
      </td>
      <td>
        <Strip runs={recent} length={STRIP_LENGTH} />
      </td>
      <td class="num" data-label="failed in 1 h:">
        {failed > 0 ? <b class="failed">{formatCount(failed)}</b> : '0'}
      </td>
      <td class="num" data-label="last run:">
        {newest ? <Time at={acceptedAtOf(newest.id)} /> : 'never'}
      </td>
      <td class="num">{nowOf(open, running)}</td>
    </tr>
  );
}

function nowOf(open: number, running: number): string {
  const waiting = Math.max(0, open - running);
  return [
    ...(running > 0 ? [`${formatCount(running)} running`] : []),
    ...(waiting > 0 ? [`${formatCount(waiting)} waiting`] : []),
  ].join(', ');
}

/** What limits an automation besides the defaults. */
function limitsOf({ concurrency, whenBusy, rate, timeoutMs, attempts }: Automation): string {
  return [
    ...(concurrency === undefined
      ? []
      : [`${concurrency} at a time${whenBusy === 'skip' ? ', else skipped' : ''}`]),
    ...(rate ? [formatRate(rate)] : []),
    ...(timeoutMs === undefined ? [] : [`at most ${writeDuration(timeoutMs)}`]),
    ...(attempts > 1 ? [`${attempts} attempts`] : []),
  ].join(' · ');
}
