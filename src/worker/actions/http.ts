import type { IncomingMessage } from 'node:http';
import type { HttpAction } from '../../core/actions/http.ts';
import { withDeadline } from '../../core/deadline.ts';
import { type AttemptResult, MAX_RESULT_BYTES } from '../../core/run.ts';
import type { OutputLog } from '../output-log.ts';
import { type FoundResult, parseResult } from '../run-result.ts';
import { type ActionContext, type ActionSettings, type Performer, TIMED_OUT, withResult } from './action.ts';
import { DeniedAddressError, type ReceiverAddresses, receiverAddresses } from './receiver-addresses.ts';
import { describeFailure, postSigned } from './signed-post.ts';

/** How much of a response's body is kept in the run's log, in bytes. */
const RESPONSE_HEAD_BYTES = 4096;

/** How long that is waited for, in milliseconds. */
const RESPONSE_HEAD_MS = 2000;

/** The same for a body that may be the run's result. */
const RESULT_MS = 5000;

/** `application/json`, or a type with the suffix `+json` (RFC 6839). */
const JSON_MEDIA_TYPE = /^\s*application\/([\w.!#$&^-]+\+)?json\s*(;|$)/i;

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
  { run, log, timeoutMs, signal, signingSecrets = [] }: ActionContext,
): Promise<AttemptResult | 'interrupted'> {
  if (signal.aborted) return 'interrupted';
  const { traceparent, tracestate } = run;
  const headers = {
    ...(traceparent !== undefined && { traceparent }),
    ...(tracestate !== undefined && { tracestate }),
  };
  try {
    const post = { url, id: run.id, body: run.payload, secrets: signingSecrets, headers, version, signal };
    const response = await postSigned(post, addresses);
    noteHead(response, log);
    // What follows a 101 is no HTTP.
    const result = response.statusCode === 101 ? undefined : await readBody(response, log);
    response.destroy();
    return withResult(judge(response.statusCode ?? 0), result, log);
  } catch (error) {
    const result = resultOf(error, signal, timeoutMs);
    if (result !== 'interrupted') log.note(result.outcome.message);
    return result;
  }
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
  const message = `The request failed: ${describeFailure(error)}.`;
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

/**
 * Logs the beginning of the body and reads the result from it, if it is JSON. Neither is waited for longer than it is worth.
 */
async function readBody(response: IncomingMessage, log: OutputLog): Promise<FoundResult | undefined> {
  const isJson = JSON_MEDIA_TYPE.test(response.headers['content-type'] ?? '');
  const wantedBytes = isJson ? MAX_RESULT_BYTES + 1 : RESPONSE_HEAD_BYTES;
  const chunks: Buffer[] = [];
  let size = 0;
  const read = new Promise<void>((resolve) => {
    response.on('data', (chunk: Buffer) => {
      if (size < RESPONSE_HEAD_BYTES) log.write('stdout', chunk.subarray(0, RESPONSE_HEAD_BYTES - size));
      if (isJson && size < wantedBytes) chunks.push(chunk);
      size += chunk.length;
      if (size >= wantedBytes) resolve();
    });
    response.on('end', resolve);
    response.on('error', () => resolve());
    response.on('close', resolve);
  });
  await withDeadline(read, isJson ? RESULT_MS : RESPONSE_HEAD_MS).catch(() => undefined);
  if (chunks.length === 0) return undefined;
  const name = "The receiver's answer";
  if (size < wantedBytes && !response.complete) {
    return { problem: `${name} did not arrive completely, so it is not kept as the result.` };
  }
  return parseResult(name, Buffer.concat(chunks));
}
