import { Webhook } from 'standardwebhooks';
import type { HttpAction } from '../../core/automation.ts';
import type { AttemptResult } from '../../core/run.ts';
import type { ActionContext } from './action.ts';

/** How much of a response's body is kept in the run's log, in bytes. */
const RESPONSE_HEAD_BYTES = 4096;

/** Statuses besides 5xx that another attempt may turn into success. */
const RETRYABLE_STATUSES = new Set([408, 425, 429]);

/**
 * POSTs the payload, byte for byte, signed as Standard Webhooks describes (standardwebhooks.com): `webhook-id` is the
 * run's id, the same in every attempt, so that receivers can recognise a repetition. Redirects are not followed.
 */
export async function deliverToUrl(
  { url }: HttpAction,
  signingSecret: string,
  version: string,
  { run, log, timeoutMs, signal }: ActionContext,
): Promise<AttemptResult | 'interrupted'> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const timestamp = new Date();
  const signature = new Webhook(signingSecret).sign(run.id, timestamp, run.payload);
  try {
    const response = await fetch(url, {
      method: 'POST',
      body: run.payload,
      redirect: 'manual',
      signal: AbortSignal.any([timeout, signal]),
      headers: {
        'content-type': 'application/json',
        'user-agent': `orc/${version}`,
        'webhook-id': run.id,
        'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
        'webhook-signature': signature,
        ...(run.traceparent !== undefined && { traceparent: run.traceparent }),
      },
    });
    const head = await readHead(response);
    log.note(`HTTP ${response.status} ${response.statusText}`.trimEnd());
    for (const [name, value] of response.headers) log.note(`${name}: ${value}`);
    if (head.length > 0) log.write('stdout', head);
    return judge(response.status);
  } catch (error) {
    if (signal.aborted) return 'interrupted';
    if (timeout.aborted) {
      const message = `No complete answer came within ${timeoutMs} ms.`;
      log.note(message);
      return { outcome: { status: 'timed_out', reason: 'timeout', message }, mayRetry: true };
    }
    const message = `The request failed: ${describe(error)}.`;
    log.note(message);
    return { outcome: { status: 'failed', reason: 'network_error', message }, mayRetry: true };
  }
}

function judge(httpStatus: number): AttemptResult {
  const reason = 'http_status';
  if (httpStatus >= 200 && httpStatus < 300) {
    const message = `The receiver answered ${httpStatus}.`;
    return { outcome: { status: 'succeeded', reason, message, httpStatus }, mayRetry: false };
  }
  const isRedirect = httpStatus >= 300 && httpStatus < 400;
  const message = `The receiver answered ${httpStatus}${isRedirect ? '; redirects are not followed' : ''}.`;
  const mayRetry = httpStatus >= 500 || RETRYABLE_STATUSES.has(httpStatus);
  return { outcome: { status: 'failed', reason, message, httpStatus }, mayRetry };
}

/** The beginning of the body; the rest is not waited for. */
async function readHead(response: Response): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    chunks.push(chunk as Uint8Array);
    size += (chunk as Uint8Array).length;
    if (size >= RESPONSE_HEAD_BYTES) break;
  }
  return Buffer.concat(chunks).subarray(0, RESPONSE_HEAD_BYTES);
}

/** fetch hides what went wrong in the cause of its error. */
function describe(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (!(cause instanceof Error)) return String(cause);
  const { code } = cause as NodeJS.ErrnoException;
  return cause.message || code || cause.name;
}
