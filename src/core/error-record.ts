import { API_KEY_IN_TEXT } from './api-key.ts';

/** Redis quotes the arguments of an unknown command, even a password: "unknown command 'AUTH', with args beginning with: …". */
const REPEATED_ARGUMENTS = /, with args beginning with:.*/g;

/** A Standard Webhooks secret. */
const SIGNING_SECRET_IN_TEXT = /whsec_[A-Za-z0-9+/=]{16,}/g;

/** User and password of a URL. */
const LOGIN_IN_URL = /\b([a-z][a-z0-9+.-]*:\/\/)[^\s/?#@]*@/gi;

/** An error's text without command arguments, API keys, signing secrets and URL passwords. */
export function errorText(text: string): string {
  return text
    .replace(REPEATED_ARGUMENTS, '')
    .replace(API_KEY_IN_TEXT, '[redacted]')
    .replace(SIGNING_SECRET_IN_TEXT, '[redacted]')
    .replace(LOGIN_IN_URL, '$1***@');
}
/**
 * The fields of an error that are logged besides its class, message, stack and causes. Other fields may hold secrets:
 * ioredis attaches the command with its arguments.
 */
const FIELDS = ['code', 'errno', 'syscall', 'address', 'port', 'statusCode'] as const;

/** Maximum length of a logged message and stack, in characters. */
const MAX_MESSAGE = 1000;
const MAX_STACK = 4000;

/** Maximum number of nested causes and of aggregated errors. */
const MAX_DEPTH = 5;

type Fields = Partial<Record<(typeof FIELDS)[number], unknown>>;

/** An error as it is logged. */
export interface ErrorRecord extends Fields {
  type: string;
  message: string;
  stack?: string;
  cause?: ErrorRecord;
  errors?: ErrorRecord[];
}

/** Copies the allowed fields of an error, without secrets. */
export function errorRecord(error: unknown, depth = 1): ErrorRecord {
  if (!(error instanceof Error)) return { type: typeof error, message: shorten(String(error), MAX_MESSAGE) };
  const record: ErrorRecord = { type: error.name, message: shorten(error.message, MAX_MESSAGE) };
  if (error.stack !== undefined) record.stack = shorten(error.stack, MAX_STACK);
  const fields = error as Error & Fields;
  for (const field of FIELDS) {
    const value = fields[field];
    if (typeof value === 'number') record[field] = value;
    else if (typeof value === 'string') record[field] = shorten(value, MAX_MESSAGE);
  }
  if (depth >= MAX_DEPTH) return record;
  if (error.cause !== undefined) record.cause = errorRecord(error.cause, depth + 1);
  if (error instanceof AggregateError) {
    record.errors = error.errors.slice(0, MAX_DEPTH).map((each) => errorRecord(each, depth + 1));
  }
  return record;
}

function shorten(text: string, length: number): string {
  return errorText(text).slice(0, length);
}
