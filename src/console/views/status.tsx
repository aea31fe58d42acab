import type { RunStatus } from '../../core/run.ts';

const GLYPHS: Readonly<Record<RunStatus, string>> = {
  succeeded: '✓',
  failed: '✕',
  timed_out: '◷',
  running: '▸',
  queued: '…',
  cancelled: '–',
  retrying: '↻',
};

/** The status of a run: a word, a sign and a colour. */
export function Status({ status }: { status: RunStatus }) {
  return (
    <span class={`pill ${status}`}>
      <i aria-hidden="true">{GLYPHS[status]}</i>
      {status.replace('_', ' ')}
    </span>
  );
}
