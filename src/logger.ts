import { type Logger, type LoggerOptions, pino, stdTimeFunctions } from 'pino';
import { API_KEY_IN_TEXT } from './core/api-key.ts';
import { withDeadline } from './core/deadline.ts';
import { errorRecord } from './core/error-record.ts';
import { visible } from './core/visible-text.ts';

export type { Logger } from 'pino';

/**
 * The API's lines are written together: so many characters, or what has come in so many milliseconds. The worker's are written
 * at once, as what it was doing has to be in its log when it is killed; `flush` waits only for a destination that has a
 * buffer, though, if of one character.
 */
const BUFFERS = {
  api: { minLength: 8192, periodicFlush: 100 },
  console: { minLength: 1 },
  worker: { minLength: 1 },
};

const FLUSH_DEADLINE_MS = 500;

/**
 * Makes a logger that writes JSON lines to standard output: ISO time, level by name, secrets replaced.
 *
 * @param level a pino level, or `silent`
 * @param process which of orc's processes writes; stands in every line
 * @param secrets are replaced wherever they stand in a line
 */
export function createLogger(
  level: string,
  process: 'api' | 'worker' | 'console',
  secrets: readonly string[] = [],
): Logger {
  const options: LoggerOptions = {
    level,
    serializers: { err: (error: unknown) => errorRecord(error) },
    hooks: { streamWrite: safeLines(secrets) },
    base: { process },
    timestamp: stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    redact: {
      // Without wildcards, which would look through every line.
      paths: [
        ...['apiKey', 'signingSecret'],
        ...['headers', 'req.headers', 'request.headers'].map((headers) => `${headers}["x-api-key"]`),
      ],
      censor: '[redacted]',
    },
  };
  return pino(options, pino.destination({ dest: 1, sync: false, ...BUFFERS[process] }));
}

/** Takes secrets out of lines of JSON, and escapes what a terminal would act on: pino escapes C0 only. */
function safeLines(secrets: readonly string[]): (line: string) => string {
  const written = secrets.map((secret) => JSON.stringify(secret).slice(1, -1));
  return (line) => {
    // Nearly no line has one, and looking for them costs less than making the line again.
    const hasSecret = written.some((secret) => line.includes(secret));
    const text = hasSecret
      ? written.reduce((rest, secret) => rest.replaceAll(secret, '[redacted]'), line)
      : line;
    return visible(text, '\n');
  };
}

/**
 * Waits until everything logged so far is written, or cannot be. A process that exits with lines left while nobody reads
 * its standard output any more would try to write them for ever. A process that is told twice to end does not wait: what
 * it still holds may then be written before what is being written, so that lines are out of order, but none is lost.
 */
export async function flush(logger: Logger): Promise<void> {
  const flushed = new Promise<void>((resolve) => logger.flush(() => resolve()));
  await withDeadline(flushed, FLUSH_DEADLINE_MS).catch(() => undefined);
}

/** Equal reports are told of this often, in milliseconds, however often they are made. */
const REPEAT_MS = 60_000;

/** Kinds of reports told apart at the same time; what comes besides counts as one more. */
const MAX_KINDS = 20;

/** What makes two equal reports differ: numbers, hashes and ids. */
const PARTICULARS = /\b(?=[\w-]*\d)[\w-]+\b/g;

/**
 * Limits what an error that comes again and again writes: the first one of its kind is told at once, and then, once a
 * minute for as long as they come, the latest with the count of those that came since.
 *
 * @param tell is given no count for the first one
 */
export function limitRepeats(
  tell: (error: Error, count: number | undefined) => void,
): (error: Error) => void {
  const kinds = new Map<string, { latest: Error; count: number }>();
  const sumUp = (kind: string) => {
    const repeated = kinds.get(kind);
    kinds.delete(kind);
    if (!repeated || repeated.count === 0) return;
    tell(repeated.latest, repeated.count);
    begin(kind, repeated.latest);
  };
  const begin = (kind: string, latest: Error) => {
    kinds.set(kind, { latest, count: 0 });
    setTimeout(sumUp, REPEAT_MS, kind).unref();
  };
  return (error) => {
    const own = `${error.name} ${error.message.slice(0, 200).replace(PARTICULARS, '')}`;
    const kind = kinds.has(own) || kinds.size < MAX_KINDS ? own : 'others';
    const repeated = kinds.get(kind);
    if (repeated) {
      repeated.latest = error;
      repeated.count += 1;
      return;
    }
    begin(kind, error);
    tell(error, undefined);
  };
}

/** A string that may come from a client, made fit for the log: no API key, and no more than 200 characters. */
export function loggable(text: string): string {
  return text.slice(0, 1000).replace(API_KEY_IN_TEXT, '[redacted]').slice(0, 200);
}

/** Letters, digits and `-._~` that are percent-encoded mean the same as if they were not (RFC 3986, section 6.2.2.2). */
const ENCODED_UNRESERVED = /%(?:[46][1-9a-f]|[57][0-9a]|2[de]|3[0-9]|5f|7e)/gi;

/** The path of a request target, made fit for the log; its query is left out. */
export function loggablePath(target: string): string {
  const path = target.split('?', 1)[0] ?? '';
  return loggable(path.replace(ENCODED_UNRESERVED, decodeURIComponent));
}
