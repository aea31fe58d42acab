import type { IncomingMessage } from 'node:http';
import { request as requestByHttps } from 'node:https';
import { urlToHttpOptions } from 'node:url';
import { Webhook } from 'standardwebhooks';
import type { HttpAction } from '../../core/automation.ts';
import { withDeadline } from '../../core/deadline.ts';
import { request as requestByHttp } from '../../core/node-http.ts';
import type { AttemptResult } from '../../core/run.ts';
import type { OutputLog } from '../output-log.ts';
import type { ActionContext } from './action.ts';

/** How much of a response's body is kept in the run's log, in bytes. */
const RESPONSE_HEAD_BYTES = 4096;

/** How long that is waited for, in milliseconds. */
const RESPONSE_HEAD_MS = 2000;

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
  if (signal.aborted) return 'interrupted';
  const timestamp = new Date();
  const signature = new Webhook(signingSecret).sign(run.id, timestamp, run.payload);
  const { protocol, hostname, port, path, auth } = urlToHttpOptions(new URL(url));
  // fetch would give up after 300 s without a word from the receiver, whatever the automation's time limit says.
  const send = protocol === 'https:' ? requestByHttps : requestByHttp;
  const headers: Record<string, string | number> = {
    'content-type': 'application/json',
    'content-length': run.payload.length,
    'user-agent': `orc/${version}`,
    'webhook-id': run.id,
    'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
    'webhook-signature': signature,
  };
  if (run.traceparent !== undefined) headers['traceparent'] = run.traceparent;
  let isTimedOut = false;
  let timer: NodeJS.Timeout | undefined;
  let abort: () => void = () => undefined;
  try {
    const request = send({ method: 'POST', protocol, hostname, port, path, auth, headers });
    // Node's own `signal` option does the same, and takes several times as long.
    abort = () => request.destroy();
    signal.addEventListener('abort', abort);
    timer = setTimeout(() => {
      isTimedOut = true;
      request.destroy();
    }, timeoutMs);
    request.end(run.payload);
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request.once('response', resolve);
      // Also hears what goes wrong after the response, which does not matter any more: the status decides.
      request.on('error', reject);
    });
    await logResponse(response, log);
    return judge(response.statusCode ?? 0);
  } catch (error) {
    if (signal.aborted) return 'interrupted';
    if (isTimedOut) {
      const message = `No answer came within ${timeoutMs} ms.`;
      log.note(message);
      return { outcome: { status: 'timed_out', reason: 'timeout', message }, mayRetry: true };
    }
    const message = `The request failed: ${describe(error)}.`;
    log.note(message);
    return { outcome: { status: 'failed', reason: 'network_error', message }, mayRetry: true };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', abort);
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

/** Notes the status, the headers and the beginning of the body, which is not waited for longer than it is worth. */
async function logResponse(response: IncomingMessage, log: OutputLog): Promise<void> {
  const { statusCode, statusMessage, rawHeaders } = response;
  let head = `HTTP ${statusCode} ${statusMessage}`.trimEnd();
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    head += `\n${rawHeaders[index]}: ${rawHeaders[index + 1]}`;
  }
  log.note(head);
  let missing = RESPONSE_HEAD_BYTES;
  const read = new Promise<void>((resolve) => {
    response.on('data', (chunk: Buffer) => {
      if (missing > 0) log.write('stdout', chunk.subarray(0, missing));
      missing -= chunk.length;
      if (missing <= 0) resolve();
    });
    response.on('end', resolve);
    response.on('error', () => resolve());
  });
  await withDeadline(read, RESPONSE_HEAD_MS).catch(() => undefined);
  response.destroy();
}

/** Some errors of the network have no message of their own, only a code. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.message || (error as NodeJS.ErrnoException).code || error.name;
}
