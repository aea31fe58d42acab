import { type ClientRequest, type IncomingMessage, request as requestByHttp } from 'node:http';
import { request as requestByHttps } from 'node:https';
import { urlToHttpOptions } from 'node:url';
import { Webhook } from 'standardwebhooks';
import type { ReceiverAddresses } from './receiver-addresses.ts';

const HUNG_UP = 'the connection was closed before an answer came';

export interface SignedPost {
  url: string;
  /** `webhook-id`: the same whenever the same is sent again, so that receivers can recognise a repetition. */
  id: string;
  /** JSON. */
  body: Buffer;
  /** Standard Webhooks secrets; there is a signature for each. */
  secrets: readonly string[];
  /** Further headers. */
  headers?: Readonly<Record<string, string>>;
  /** The version of orc. */
  version: string;
  /** Ends the request, and reading the answer. */
  signal: AbortSignal;
}

/**
 * POSTs JSON, byte for byte, signed as Standard Webhooks describes (standardwebhooks.com). Redirects are not followed.
 *
 * @returns the head of the final answer; the caller reads or destroys the rest
 * @throws DeniedAddressError for a receiver that nothing is sent to, and what the network or the signal says
 */
export async function postSigned(
  { url, id, body, secrets, headers, version, signal }: SignedPost,
  addresses: ReceiverAddresses,
): Promise<IncomingMessage> {
  const timestamp = new Date();
  const signatures = secrets.map((secret) => new Webhook(secret).sign(id, timestamp, body));
  const { protocol, hostname, port, path, auth } = urlToHttpOptions(new URL(url));
  const allHeaders = {
    'content-type': 'application/json',
    'content-length': body.length,
    'user-agent': `orc/${version}`,
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
    'webhook-signature': signatures.join(' '),
    ...headers,
  };
  addresses.check(hostname ?? '');
  const { lookup } = addresses;
  // fetch would give up after 300 s without a word from the receiver, whatever the automation's time limit says.
  const send = protocol === 'https:' ? requestByHttps : requestByHttp;
  const request = send({
    ...{ method: 'POST', protocol, hostname, port, path, auth },
    // A connection of its own: the receiver may be closing a kept one at this moment, and the request would be lost.
    ...{ headers: allHeaders, lookup, signal, agent: false },
  });
  request.end(body);
  return answerTo(request);
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

/** Why there is no answer, for people. Some errors of the network have no message of their own, only a code. */
export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // What Node says is "socket hang up".
  if ((error as NodeJS.ErrnoException).code === 'ECONNRESET' && !('syscall' in error)) return HUNG_UP;
  return error.message || (error as NodeJS.ErrnoException).code || error.name;
}
