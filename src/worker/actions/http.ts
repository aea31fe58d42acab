import { type ClientRequest, type IncomingMessage, request as requestByHttp } from 'node:http';
import { request as requestByHttps } from 'node:https';
import { urlToHttpOptions } from 'node:url';
import { Webhook } from 'standardwebhooks';
import type { HttpAction } from '../../core/actions/http.ts';
import { withDeadline } from '../../core/deadline.ts';
import type { AttemptResult } from '../../core/run.ts';
import type { OutputLog } from '../output-log.ts';
import { type ActionContext, type ActionSettings, type Performer, TIMED_OUT } from './action.ts';
import { DeniedAddressError, type ReceiverAddresses, receiverAddresses } from './receiver-addresses.ts';

/** How much of a response's body is kept in the run's log, in bytes. */
const RESPONSE_HEAD_BYTES = 4096;

/** How long that is waited for, in milliseconds. */
const RESPONSE_HEAD_MS = 2000;

const HUNG_UP = 'the connection was closed before an answer came';

/** Statuses besides 5xx that another attempt may turn into success. */
const RETRYABLE_STATUSES = new Set([408, 425, 429]);

export function openDeliveries({ config }: Pick<ActionSettings, 'config'>): Performer<HttpAction> {
  const addresses = receiverAddresses(config.DELIVERY_DENY);
  return { perform: (action, context) => deliver(action, addresses, config.version, context) };
}

/**
 * POSTs the payload, byte for byte, signed as Standard Webhooks describes (standardwebhooks.com): `webhook-id` is the
 * run's id, the same in every attempt, so that receivers can recognise a repetition. Redirects are not followed.
 */
async function deliver(
  { url }: HttpAction,
  addresses: ReceiverAddresses,
  version: string,
  { run, log, timeoutMs, signal, signingSecret = '' }: ActionContext,
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
  if (run.tracestate !== undefined) headers['tracestate'] = run.tracestate;
  try {
    addresses.check(hostname ?? '');
    const { lookup } = addresses;
    const request = send({ method: 'POST', protocol, hostname, port, path, auth, headers, lookup, signal });
    request.end(run.payload);
    const response = await answerTo(request);
    noteHead(response, log);
    // What follows a 101 is no HTTP.
    if (response.statusCode !== 101) await logBody(response, log);
    response.destroy();
    return judge(response.statusCode ?? 0);
  } catch (error) {
    const result = resultOf(error, signal, timeoutMs);
    if (result !== 'interrupted') log.note(result.outcome.message);
    return result;
  }
}

/** The head of the receiver's final answer. Rejects when the connection ends without one. */
function answerTo(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once('response', resolve);
    // Were nobody to listen to this, all that Node tells of a 101 is that the connection is closed.
    request.once('upgrade', (response, socket) => {
      socket.destroy();
      resolve(response);
    });
    // Also hears what goes wrong after the response, which does not matter any more: the status decides.
    request.on('error', reject);
    request.once('close', () => reject(new Error(HUNG_UP)));
  });
}

/** Why there is no answer, as the result of the attempt. */
function resultOf(error: unknown, { aborted, reason }: AbortSignal, timeoutMs: number) {
  if (aborted && reason !== TIMED_OUT) return 'interrupted';
  if (aborted) {
    const message = `No answer came within ${timeoutMs} ms.`;
    return { outcome: { status: 'timed_out', reason: 'timeout', message }, mayRetry: true } as const;
  }
  if (error instanceof DeniedAddressError) {
    const message = `Nothing was sent: ${error.message}, to which nothing is delivered.`;
    return { outcome: { status: 'failed', reason: 'not_started', message }, mayRetry: false } as const;
  }
  const message = `The request failed: ${describe(error)}.`;
  return { outcome: { status: 'failed', reason: 'network_error', message }, mayRetry: true } as const;
}

function judge(httpStatus: number): AttemptResult {
  const reason = 'http_status';
  if (httpStatus >= 200 && httpStatus < 300) {
    const message = `The receiver answered ${httpStatus}.`;
    return { outcome: { status: 'succeeded', reason, message, httpStatus }, mayRetry: false };
  }
  const message = `The receiver answered ${httpStatus}${explain(httpStatus)}.`;
  const mayRetry = httpStatus >= 500 || RETRYABLE_STATUSES.has(httpStatus);
  return { outcome: { status: 'failed', reason, message, httpStatus }, mayRetry };
}

function explain(httpStatus: number): string {
  if (httpStatus < 200) return '; other protocols than HTTP are not spoken';
  return httpStatus >= 300 && httpStatus < 400 ? '; redirects are not followed' : '';
}

/** Notes the status and the headers. */
function noteHead({ statusCode, statusMessage, rawHeaders }: IncomingMessage, log: OutputLog): void {
  let head = `HTTP ${statusCode} ${statusMessage}`.trimEnd();
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    head += `\n${rawHeaders[index]}: ${rawHeaders[index + 1]}`;
  }
  log.note(head);
}

/** Logs the beginning of the body, which is not waited for longer than it is worth. */
async function logBody(response: IncomingMessage, log: OutputLog): Promise<void> {
  let missing = RESPONSE_HEAD_BYTES;
  const read = new Promise<void>((resolve) => {
    response.on('data', (chunk: Buffer) => {
      if (missing > 0) log.write('stdout', chunk.subarray(0, missing));
      missing -= chunk.length;
      if (missing <= 0) resolve();
    });
    response.on('end', resolve);
    response.on('error', () => resolve());
    response.on('close', resolve);
  });
  await withDeadline(read, RESPONSE_HEAD_MS).catch(() => undefined);
}

/** Some errors of the network have no message of their own, only a code. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // What Node says is "socket hang up".
  if ((error as NodeJS.ErrnoException).code === 'ECONNRESET' && !('syscall' in error)) return HUNG_UP;
  return error.message || (error as NodeJS.ErrnoException).code || error.name;
}
