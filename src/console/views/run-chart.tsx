import type { RunCount } from '../../store/run-counts.ts';
import { formatCount } from './count.ts';

/** In units of the drawing, which is stretched to its place. */
const BAR = 10;
const GAP = 2;
const HEIGHT = 100;

/** How runs ended, from the bottom of a bar to its top. */
const ENDS = ['failed', 'cancelled', 'succeeded'] as const;

interface RunChartProps {
  counts: readonly RunCount[];
  /** Of each bar. */
  minutes: number;
}

/** How many runs were accepted and how many ended, as bars over time. */
export function RunChart({ counts, minutes }: RunChartProps) {
  const highest = Math.max(1, ...counts.map((count) => Math.max(count.accepted, endedOf(count))));
  const width = counts.length * BAR;
  const hours = (counts.length * minutes) / 60;
  const unit = minutes === 1 ? 'minute' : `${minutes} minutes`;
  return (
    <figure class="chart">
      <figcaption class="legend">
        <span class="key-succeeded">succeeded</span>
        <span class="key-failed">failed</span>
        <span class="key-cancelled">cancelled</span>
        <span class="key-accepted">accepted</span>
        <span class="push">
          at most {formatCount(highest)} per {unit}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${width} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={summaryOf(counts, unit)}
      >
        {counts.map((count, index) => (
          <Bar key={index} count={count} at={index * BAR} highest={highest} spanMs={minutes * 60_000} />
        ))}
        <path class="accepted" d={outlineOf(counts, highest)} vector-effect="non-scaling-stroke" />
      </svg>
      <div class="axis" aria-hidden="true">
        <span>{hours} h ago</span>
        <span>{hours === 1 ? '30 min' : `${hours / 2} h`} ago</span>
        <span>now</span>
      </div>
    </figure>
  );
}

function Bar({
  count,
  at,
  highest,
  spanMs,
}: {
  count: RunCount;
  at: number;
  highest: number;
  spanMs: number;
}) {
  let top = HEIGHT;
  const parts = ENDS.map((end) => {
    const height = (count[end] / highest) * HEIGHT;
    top -= height;
    return height === 0 ? null : (
      <rect key={end} class={end} x={at + GAP / 2} y={round(top)} width={BAR - GAP} height={round(height)} />
    );
  });
  return (
    <g>
      <title>{`${timeOf(count.since)} to ${timeOf(new Date(count.since.getTime() + spanMs))} UTC: ${describe(count)}`}</title>
      <rect class="nothing" x={at} y={0} width={BAR} height={HEIGHT} />
      {parts}
    </g>
  );
}

function outlineOf(counts: readonly RunCount[], highest: number): string {
  const heights = counts.map(({ accepted }) => round(HEIGHT - (accepted / highest) * HEIGHT));
  return heights
    .map(
      (y, index) => `${index === 0 ? 'M0' : 'L'}${index === 0 ? '' : index * BAR} ${y}H${(index + 1) * BAR}`,
    )
    .join('');
}

function endedOf({ succeeded, failed, cancelled }: RunCount): number {
  return succeeded + failed + cancelled;
}

function describe({ accepted, succeeded, failed, cancelled }: Omit<RunCount, 'since'>): string {
  return `${formatCount(accepted)} accepted, ${formatCount(succeeded)} succeeded, ${formatCount(failed)} failed, ${formatCount(cancelled)} cancelled`;
}

function summaryOf(counts: readonly RunCount[], unit: string): string {
  const sum = (field: (typeof ENDS)[number] | 'accepted') =>
    counts.reduce((total, count) => total + count[field], 0);
  const all = {
    accepted: sum('accepted'),
    succeeded: sum('succeeded'),
    failed: sum('failed'),
    cancelled: sum('cancelled'),
  };
  return `Runs per ${unit}; in all ${describe(all)}`;
}

function timeOf(time: Date): string {
  return time.toISOString().slice(11, 16);
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
