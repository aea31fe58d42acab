import type { RecentRun } from '../../store/recent-runs.ts';

/** The latest runs as a strip of colours, the newest at its end. @param length places of the strip */
export function Strip({ runs, length }: { runs: readonly RecentRun[]; length: number }) {
  const empty = Array.from({ length: Math.max(0, length - runs.length) }, (_, index) => index);
  return (
    <span class="strip" role="img" aria-label={summaryOf(runs)}>
      {empty.map((index) => (
        <i key={index} class="none" />
      ))}
      {runs.map(({ id, end }) => (
        <i key={id} class={end} />
      ))}
    </span>
  );
}

/** The same with a link to each of the runs. */
export function LinkedStrip({ runs }: { runs: readonly RecentRun[] }) {
  return (
    <span class="strip long">
      {runs.map(({ id, end }) => (
        <a key={id} class={end} href={`/runs/${id}`} title={end}>
          <span class="unseen">{end} run</span>
        </a>
      ))}
    </span>
  );
}

function summaryOf(runs: readonly RecentRun[]): string {
  if (runs.length === 0) return 'no runs';
  const counts = new Map<string, number>();
  for (const { end } of runs) counts.set(end, (counts.get(end) ?? 0) + 1);
  return `last runs: ${[...counts].map(([end, count]) => `${count} ${end}`).join(', ')}`;
}
