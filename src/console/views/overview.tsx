import { formatDuration } from '../../core/durations.ts';
import { outcomeSummary, type Run } from '../../core/run.ts';
import type { Finding } from '../../ops/findings/finding.ts';
import type { SurveyedAutomation } from '../../store/automation-survey.ts';
import type { RunCount } from '../../store/run-counts.ts';
import type { QueueDepth } from '../../store/runs.ts';
import type { AliveWorkers } from '../../store/workers.ts';
import { countOf, formatCount } from './count.ts';
import { FindingList } from './finding-list.tsx';
import { Refreshed } from './refreshed.tsx';
import { RunChart } from './run-chart.tsx';
import { Status } from './status.tsx';
import { Time } from './time.tsx';

/** The spans of time that the overview can show, with the minutes of each bar. */
export const PERIODS = {
  '1h': { text: '1 h', spans: 60, minutes: 1 },
  '24h': { text: '24 h', spans: 144, minutes: 10 },
} as const;
export type PeriodName = keyof typeof PERIODS;

export interface OverviewProps {
  period: PeriodName;
  counts: RunCount[];
  depth: QueueDepth;
  running: number;
  workers: AliveWorkers;
  findings: { found: Finding[]; readAt: Date };
  /** Those that failed most in the last hour. */
  failing: SurveyedAutomation[];
  automations: number;
  latest: Run[];
}

export function Overview(props: OverviewProps) {
  const { period, counts, findings, failing, latest } = props;
  const { minutes } = PERIODS[period];
  const wrong = findings.found.filter(({ state }) => state !== 'ok');
  return (
    <>
      <h1>
        Overview <Refreshed />
        <span class="push filters">
          {Object.entries(PERIODS).map(([name, { text }]) => (
            <a
              key={name}
              class="chip"
              href={name === '1h' ? '/' : `/?period=${name}`}
              aria-current={name === period ? 'true' : undefined}
            >
              {text}
            </a>
          ))}
        </span>
      </h1>
      <div data-part="now">
        {props.automations === 0 && <Welcome />}
        <Cards {...props} />
      </div>
      <h2>Runs per {minutes === 1 ? 'minute' : `${minutes} minutes`}</h2>
      <div class="panel" data-part="chart">
        <RunChart counts={counts} minutes={minutes} />
      </div>
      <div data-part="attention">
        <h2>Needs attention</h2>
        {wrong.length === 0 && failing.length === 0 && <p class="quiet">Nothing.</p>}
        <FindingList findings={findings.found} />
        {failing.length > 0 && <Failing automations={failing} />}
        <p class="quiet">
          Redis, the workers and the runs were examined <Time at={findings.readAt} />.
        </p>
      </div>
      <div data-part="latest">
        <h2>Latest runs</h2>
        {latest.length === 0 ? (
          <p class="empty">
            No run was accepted so far. Open an automation and choose “Run now”, or trigger it over HTTP.
          </p>
        ) : (
          <LatestRuns runs={latest} />
        )}
      </div>
    </>
  );
}

function Welcome() {
  return (
    <div class="finding">
      <div>
        <b>There is no automation yet</b>
        <p>
          An automation is something that a caller can start over HTTP: a command, an agent, or a delivery to
          a URL.
        </p>
        <p>
          <a class="link" href="/new-automation">
            Create the first one
          </a>
        </p>
      </div>
    </div>
  );
}

function Cards({ counts, depth, running, workers, failing, period }: OverviewProps) {
  const sum = (field: 'accepted' | 'failed') => counts.reduce((total, count) => total + count[field], 0);
  const failed = sum('failed');
  const [most] = failing;
  const { queued, paused, oldestQueuedAt } = depth;
  const { slots, workersAlive, workersDraining } = workers;
  const draining = workersDraining.length;
  return (
    <div class="cards">
      <Card number={formatCount(sum('accepted'))} href="/runs">
        accepted in {PERIODS[period].text}
      </Card>
      <Card
        number={formatCount(failed)}
        className={failed > 0 ? 'failed' : undefined}
        href="/runs?status=any-failure"
      >
        failed in {PERIODS[period].text}
        {most && `, most by ${most.slug}`}
      </Card>
      <Card number={formatCount(queued)} href="/runs?status=queued">
        {oldestQueuedAt
          ? `waiting, the oldest for ${formatDuration(Math.max(0, Date.now() - oldestQueuedAt.getTime()))}`
          : 'waiting'}
        {paused > 0 && `; ${formatCount(paused)} held by pause`}
      </Card>
      <Card
        number={
          slots === undefined ? formatCount(running) : `${formatCount(running)} / ${formatCount(slots)}`
        }
        className={workersAlive === 0 ? 'failed' : undefined}
        href="/workers"
      >
        {workersAlive === 0
          ? 'slots busy: no worker is alive'
          : `slots busy on ${countOf(workersAlive, 'worker')}`}
        {draining > 0 && `; ${draining} drain${draining === 1 ? 's' : ''}`}
      </Card>
    </div>
  );
}

interface CardProps {
  number: string;
  href: string;
  className?: string | undefined;
  children: preact.ComponentChildren;
}

function Card({ number, href, className, children }: CardProps) {
  return (
    <a class="card" href={href}>
      <b class={className}>{number}</b>
      <span>{children}</span>
    </a>
  );
}

function Failing({ automations }: { automations: readonly SurveyedAutomation[] }) {
  return (
    <div class="finding">
      <div>
        <b>Failed most in the last hour</b>
        <ul class="plain">
          {automations.map(({ slug, failed, state }) => (
            <li key={slug}>
              {state === 'deleted' ? slug : <a href={`/automations/${slug}`}>{slug}</a>}:{' '}
              <a class="link" href={`/runs?automation=${slug}&status=any-failure&since=1h`}>
                {countOf(failed, 'failed run')}
              </a>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function LatestRuns({ runs }: { runs: readonly Run[] }) {
  return (
    <table class="stack">
      <thead>
        <tr>
          <th>Status</th>
          <th>Automation</th>
          <th>What happened</th>
          <th class="num">Took</th>
          <th class="num">Accepted</th>
        </tr>
      </thead>
      <tbody>
        {runs.map(({ id, automation, status, outcome, acceptedAt, firstStartedAt, endedAt }) => (
          <tr key={id}>
            <td>
              <Status status={status} />
            </td>
            <td>
              <a href={`/runs/${id}`}>{automation}</a>
            </td>
            <td class="what">{outcome ? outcomeSummary(outcome) : ''}</td>
            <td class="num">
              {firstStartedAt && endedAt ? formatDuration(endedAt.getTime() - firstStartedAt.getTime()) : ''}
            </td>
            <td class="num">
              <Time at={acceptedAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
