import { formatDuration } from '../core/durations.ts';
import { outcomeLine, type RunOutcome } from '../core/run.ts';
import type { LogRecord } from '../local/child.ts';
import type { Output } from './output.ts';

/** A line longer than this would wrap in most terminals. */
const MAX_OUTPUT_LENGTH = 120;

/** One line for an ended run, a failed attempt or anything that needs attention; undefined for other records. */
export function formatRecord(
  record: LogRecord,
  printed: string | undefined,
  output: Output,
): string | undefined {
  const { msg, level, time } = record;
  const clock = output.style('dim', localTime(String(time)));
  if (msg === 'run ended') return `${clock} ${formatEnd(record, printed, output)}`;
  if (msg === 'run retries') {
    const { runId, automation, attempt } = record;
    return `${clock} ${output.style('yellow', '↻')} ${automation} is retried after attempt ${attempt}  ${output.style('dim', String(runId))}  ${outcomeLine(outcomeIn(record))}`;
  }
  if (msg === 'run interrupted') {
    const { runId, automation, attempt, reason } = record;
    return `${clock} ${output.style('yellow', '!')} ${automation} was interrupted in attempt ${attempt}: ${reason}  ${output.style('dim', String(runId))}`;
  }
  if (msg === 'request' && record['error'] !== undefined) {
    const { method, path, statusCode, error } = record;
    return `${clock} ${output.style('yellow', '!')} ${method} ${path} was answered ${statusCode} ${error}`;
  }
  if (msg === 'requests refused without a line') {
    const { count, statusCode, error } = record;
    return `${clock} ${output.style('yellow', '!')} ${count} more were answered ${statusCode} ${error}`;
  }
  if (msg === 'health changed' && record['from'] === 'unavailable' && record['status'] === 'ok') {
    return `${clock} ${output.style('green', '✔')} triggers are accepted again`;
  }
  if (level === 'warn' || level === 'error' || level === 'fatal') {
    const { automation, error, err = { message: error } } = record;
    const cause = (err as { message?: string }).message;
    const where = automation === undefined ? record['process'] : automation;
    return `${clock} ${output.style('yellow', '!')} ${where}: ${msg}${cause ? ` (${cause})` : ''}`;
  }
  return undefined;
}

function formatEnd(record: LogRecord, printed: string | undefined, output: Output): string {
  const { runId, automation, status, durationMs } = record;
  const isSuccess = status === 'succeeded';
  const mark = isSuccess ? output.style('green', '✔') : output.style('red', '✖');
  const took = formatDuration(Number(durationMs));
  const detail = isSuccess ? printed?.slice(0, MAX_OUTPUT_LENGTH) : outcomeLine(outcomeIn(record));
  return `${mark} ${automation} ${status} in ${took}  ${output.style('dim', String(runId))}${detail ? `  ${detail}` : ''}`;
}

function outcomeIn({ message, detail }: LogRecord): Pick<RunOutcome, 'message' | 'detail'> {
  return { message: String(message), ...(typeof detail === 'string' && { detail }) };
}

/** The clock of this machine, as in `09:38:56`. */
function localTime(time: string): string {
  return new Date(time).toTimeString().slice(0, 8);
}
