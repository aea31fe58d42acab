import type { ExecutingRun } from '../../store/runs.ts';
import type { LiveWorker } from '../../store/workers.ts';
import { countOf, formatCount } from './count.ts';
import { Refreshed } from './refreshed.tsx';
import { Time } from './time.tsx';

interface WorkersProps {
  workers: readonly LiveWorker[];
  /** Runs that execute, in all. */
  count: number;
  /** The first of them. */
  runs: readonly ExecutingRun[];
}

/** The live workers, and what each of them executes. */
export function Workers({ workers, count, runs }: WorkersProps) {
  const ids = new Set(workers.map(({ id }) => id));
  const lost = runs.filter(({ worker }) => worker === undefined || !ids.has(worker));
  const drains = workers.filter(({ isDraining }) => isDraining).length;
  return (
    <>
      <h1>
        Workers <Refreshed />
      </h1>
      <div data-part="workers">
        {workers.length === 0 ? (
          <p class="empty">
            No worker is alive: accepted runs wait. Start one on any machine that reaches this Redis:{' '}
            <code>orc worker</code>
          </p>
        ) : (
          <p class="quiet">
            {countOf(workers.length, 'worker')}
            {drains > 0 && ` (${drains} of them drain: they finish their runs and take no more)`},{' '}
            {countOf(count, 'run')} under way
            {runs.length < count && `; the first ${formatCount(runs.length)} are shown`}. A worker without a
            sign of life for 7 s is not listed.
          </p>
        )}
        {workers.map(({ id, slots, isDraining, seenAt }) => (
          <Worker
            key={id}
            name={id}
            facts={[slots === undefined ? 'alive' : countOf(slots, 'slot'), isDraining ? 'drains' : '']}
            seenAt={seenAt}
            runs={runs.filter(({ worker }) => worker === id)}
          />
        ))}
        {lost.length > 0 && (
          <Worker
            name="Without a live worker"
            facts={['their workers died, or lost Redis; another one takes over within a minute']}
            runs={lost}
          />
        )}
      </div>
    </>
  );
}

interface WorkerProps {
  name: string;
  facts: readonly string[];
  seenAt?: Date;
  runs: readonly ExecutingRun[];
}

function Worker({ name, facts, seenAt, runs }: WorkerProps) {
  return (
    <section>
      <h2 class="worker">
        <span class="mono">{name}</span>{' '}
        <small class="quiet">
          {facts.filter((fact) => fact !== '').join(', ')}
          {seenAt && (
            <>
              , seen <Time at={seenAt} />
            </>
          )}
        </small>
      </h2>
      {runs.length === 0 ? (
        <p class="quiet">It executes nothing.</p>
      ) : (
        <table class="stack">
          <thead>
            <tr>
              <th>Automation</th>
              <th>Run</th>
              <th class="num">Attempt</th>
              <th class="num">Since</th>
            </tr>
          </thead>
          <tbody>
            {runs.map(({ id, automation, attempt, startedAt }) => (
              <tr key={id}>
                <td>
                  <a href={`/automations/${automation}`}>{automation}</a>
                </td>
                <td class="mono">
                  <a href={`/runs/${id}`}>{id}</a>
                </td>
                <td class="num" data-label="attempt">
                  {attempt}
                </td>
                <td class="num">{startedAt && <Time at={startedAt} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
