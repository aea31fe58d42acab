import { isTerminal, type Run, type RunAttemptRecord } from '../core/run.ts';
import type { EventDelivery } from '../core/run-event.ts';
import type { RunArtifacts } from '../store/artifacts.ts';
import type { RunLogPosition } from '../store/run-log.ts';
import type { Store } from '../store/store.ts';
import { type LogLine, linesOf } from './live/log-lines.ts';

/** So much of a log is on the page, in bytes, and so many lines. */
const LOG_BYTES = 128 * 1024;
const LOG_LINES = 2000;

/** So much of a patch is on the page, in bytes. */
const PATCH_BYTES = 128 * 1024;

/** The artifact in which an agent's changes are. */
const PATCH = 'changes.patch';

/** Everything that the page of a run shows. */
export interface RunDetails {
  run: Run;
  attempts: RunAttemptRecord[];
  /** When the next one may begin. */
  dueAt: Date | 'held' | undefined;
  payload: string;
  result: string | undefined;
  artifacts: RunArtifacts | undefined;
  events: EventDelivery[];
  /** Whether its log, result and artifacts were removed to stay within KEEP_BYTES. */
  wasDropped: boolean;
  /** Whether an operator has cancelled it and its worker has not yet ended it. */
  isCancelling: boolean;
  log: RunLogEnd;
  /** What an agent has changed, as text of a unified diff, and whether that is all of it. */
  patch: { text: string; isWhole: boolean } | undefined;
  /** Changes whenever an attempt begins or ends: see `RunProgress`. */
  state: string;
}

/** The end of a log. */
export interface RunLogEnd {
  lines: LogLine[];
  /** Whether these are all lines. */
  isWhole: boolean;
  /** What the script reads on after, in order to show the same lines and what follows them. */
  before: RunLogPosition;
}

/** Before the first entry of every log. */
const LOG_START = '0-0';

/** Reads a run with a bounded number of commands; undefined if there is none. */
export async function readRunDetails(store: Store, runId: string): Promise<RunDetails | undefined> {
  // Read first: what follows is at least as new, and the page is read again when this changes.
  const progress = await store.runs.progress(runId);
  const run = await store.runs.get(runId);
  if (!run || !progress) return undefined;
  const [
    attempts,
    dueAt,
    payload = '{}',
    result,
    artifacts,
    events,
    wasDropped,
    isCancelRequested,
    log,
    patch,
  ] = await Promise.all([
    store.runs.attempts(run),
    store.runs.dueAt(runId),
    store.runs.payload(runId),
    store.results.read(run),
    store.artifacts.list(runId),
    store.events.deliveriesOf(run),
    store.kept.wasDropped(runId),
    store.runs.isCancelRequested(runId),
    readLogEnd(store, runId),
    readPatch(store, runId),
  ]);
  const isCancelling = isCancelRequested && !isTerminal(run.status);
  return {
    run,
    attempts,
    dueAt,
    payload,
    result,
    artifacts,
    events,
    wasDropped,
    isCancelling,
    log,
    patch,
    state: progress.state,
  };
}

async function readLogEnd({ runLogs }: Store, runId: string): Promise<RunLogEnd> {
  const { entries, isWhole, before = LOG_START } = await runLogs.tail(runId, LOG_BYTES);
  const chunks = entries.map(({ entry }) => ({ ...entry, time: entry.time.getTime() }));
  const lines = linesOf(chunks, !isWhole);
  return { lines: lines.slice(-LOG_LINES), isWhole: isWhole && lines.length <= LOG_LINES, before };
}

async function readPatch({ artifacts }: Store, runId: string): Promise<RunDetails['patch']> {
  const opened = await artifacts.open(runId, PATCH);
  if (!opened) return undefined;
  for await (const chunk of opened.chunks) {
    const text = chunk.subarray(0, PATCH_BYTES).toString('utf8');
    return { text, isWhole: opened.artifact.bytes <= PATCH_BYTES };
  }
  return undefined;
}
