import { formatDuration } from '../../core/durations.ts';
import { outcomeSummary, type Run, type RunAttemptRecord } from '../../core/run.ts';
import { visible } from '../../core/visible-text.ts';

/** A part of the time that a run took. */
interface Phase {
  kind: 'waiting' | 'pause' | 'failed' | 'succeeded' | 'running' | 'cancelled';
  from: number;
  to: number;
  text: string;
}

/** Narrower phases show no text, in percent. */
const MIN_TEXT_PERCENT = 12;

/** Narrowest phase, in percent: it must be seen. */
const MIN_PERCENT = 0.7;

/** A bar of the time from the acceptance to the end, and its attempts in words. */
export function RunTimeline({ run, attempts }: { run: Run; attempts: readonly RunAttemptRecord[] }) {
  const phases = phasesOf(run, attempts, Date.now());
  const widths = widthsOf(phases);
  let x = 0;
  return (
    <>
      <svg
        class="timeline"
        width="100%"
        height="34"
        role="img"
        aria-label={phases.map(({ text }) => text).join(', ')}
      >
        {phases.map(({ kind, text, from }, index) => {
          const width = widths[index] ?? 0;
          const at = x;
          x += width;
          return (
            <svg key={`${kind} ${from}`} x={`${at}%`} width={`${width}%`} height="34">
              <title>{text}</title>
              <rect class={kind} width="100%" height="34" />
              {width >= MIN_TEXT_PERCENT && (
                <text x="8" y="21">
                  {text}
                </text>
              )}
            </svg>
          );
        })}
      </svg>
      {attempts.length > 1 && (
        <ol class="attempts">
          {attempts.map((attempt) => (
            <li key={attempt.attempt}>
              <b>Attempt {attempt.attempt}</b> on {visible(attempt.worker)}, {tookOf(attempt)}
              {', '}
              {endOf(attempt)}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}

function tookOf({ startedAt, endedAt }: RunAttemptRecord): string {
  return formatDuration((endedAt ?? new Date()).getTime() - startedAt.getTime());
}

function endOf({ outcome, interruption }: RunAttemptRecord): string {
  return outcome ? visible(outcomeSummary(outcome)) : (interruption ?? 'executing');
}

function phasesOf(run: Run, attempts: readonly RunAttemptRecord[], now: number): Phase[] {
  const phases: Phase[] = [];
  let from = run.acceptedAt.getTime();
  for (const attempt of attempts) {
    const start = attempt.startedAt.getTime();
    const isFirst = phases.length === 0;
    const word = isFirst ? 'waited' : 'pause';
    phases.push({
      kind: isFirst ? 'waiting' : 'pause',
      from,
      to: start,
      text: `${word} ${formatDuration(Math.max(0, start - from))}`,
    });
    from = attempt.endedAt?.getTime() ?? now;
    phases.push({
      kind: kindOf(attempt),
      from: start,
      to: from,
      text: `attempt ${attempt.attempt} · ${tookOf(attempt)}`,
    });
  }
  const isWaiting = run.status === 'queued' || run.status === 'retrying';
  if (isWaiting || attempts.length === 0) {
    const to = run.endedAt?.getTime() ?? now;
    phases.push({ kind: 'waiting', from, to, text: `waits ${formatDuration(Math.max(0, to - from))}` });
  }
  return phases;
}

function kindOf({ outcome, interruption }: RunAttemptRecord): Phase['kind'] {
  if (outcome?.status === 'succeeded' || outcome?.status === 'cancelled') return outcome.status;
  return outcome || interruption !== undefined ? 'failed' : 'running';
}

/** In percent, 100 together. */
function widthsOf(phases: readonly Phase[]): number[] {
  const spans = phases.map(({ from, to }) => Math.max(0, to - from));
  const total = spans.reduce((sum, span) => sum + span, 0) || 1;
  const widths = spans.map((span) => Math.max(MIN_PERCENT, (span / total) * 100));
  const sum = widths.reduce((all, width) => all + width, 0);
  return widths.map((width) => Math.round((width / sum) * 10_000) / 100);
}
