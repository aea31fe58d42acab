import { isTerminal, type Run } from '../../core/run.ts';
import type { LogLine } from '../live/log-lines.ts';
import type { RunLogEnd } from '../run-details.ts';

interface RunLogProps {
  run: Run;
  log: RunLogEnd;
  wasDropped: boolean;
}

/** The end of a run's log. The script goes on with it while the run executes, and adds what the hidden controls do. */
export function RunLogView({
  run: { id, status },
  log: { lines, isWhole, before },
  wasDropped,
}: RunLogProps) {
  const isLive = !isTerminal(status);
  return (
    <div data-log={isLive ? `/runs/${id}/events?after=${before}` : ''}>
      <div class="bar">
        <h2>Log</h2>
        <span data-log-state>{isLive ? 'so far' : `${lines.length} lines`}</span>
        {!isWhole && (
          <span>
            the end only:{' '}
            <a class="link" href={`/runs/${id}/log`}>
              all of it
            </a>
          </span>
        )}
        <span class="push">
          <search data-script hidden>
            <label>
              <span class="visually-hidden">Search the log</span>
              <input type="search" placeholder="Search" data-log-search />
            </label>
            <output data-log-hits />
          </search>
          <button class="btn" type="button" aria-pressed="true" data-script data-log-wrap hidden>
            Wrap
          </button>
          {isLive && (
            <button class="btn" type="button" aria-pressed="true" data-script data-log-follow hidden>
              Follow
            </button>
          )}
          <a class="btn" href={`/runs/${id}/log.txt`} download>
            Download
          </a>
        </span>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it */}
      <section class="term" aria-label="Log of the run" tabIndex={0} data-log-lines>
        {lines.map((line, index) => (
          <LogLineView key={index} line={line} />
        ))}
        {lines.length === 0 && <p class="log-empty">{emptyWords(status, wasDropped)}</p>}
      </section>
    </div>
  );
}

function LogLineView({ line: { time, source, summary, spans } }: { line: LogLine }) {
  const at = new Date(time).toISOString();
  const text = spans.map(({ text, style }) => (style === '' ? text : <span class={style}>{text}</span>));
  const clock = (
    <time class="log-time" dateTime={at} data-clock="">
      {at.slice(11, 23)}
    </time>
  );
  if (summary === undefined) {
    return (
      <div class={`l ${source}`}>
        {clock}
        {text}
      </div>
    );
  }
  return (
    <details class={`l ${source}`}>
      <summary>
        {clock}
        {summary}
      </summary>
      <div>{text}</div>
    </details>
  );
}

function emptyWords(status: Run['status'], wasDropped: boolean): string {
  if (wasDropped) return 'The log was removed to stay within KEEP_BYTES. See: orc doctor';
  if (status === 'queued') return 'The run waits for a worker.';
  return isTerminal(status) ? 'The run has printed nothing.' : 'Nothing is printed so far.';
}
