import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { isLoopback } from '../../core/loopback.ts';
import { ConsoleError } from '../console-error.ts';
import { SECURITY_HEADERS } from '../security-headers.ts';

/**
 * Refuses, before anything else is looked at, what another site makes an operator's browser send: requests under a name that
 * is not the console's (DNS rebinding), changes from elsewhere (CSRF), and pages as parts of others.
 */
export const requestGuardPlugin = fastifyPlugin(
  async (app: FastifyInstance, { url }: { url: string }) => {
    const own = new URL(url);

    app.addHook('onRequest', async (request, reply) => {
      reply.headers(SECURITY_HEADERS).header('x-request-id', request.id);
      if (!isOwnHost(request, own)) {
        throw new ConsoleError(
          421,
          'Another name is expected',
          `The console answers at ${own.origin} and at localhost only.`,
          { cure: { text: 'Open that address. If the console has another one, set CONSOLE_URL to it.' } },
        );
      }
      if (isFromElsewhere(request, own)) {
        throw new ConsoleError(
          403,
          'The request came from another site',
          'The console takes changes from its own pages only.',
          { cure: { text: 'Open the page in the console, and try again there.' } },
        );
      }
    });
  },
  { name: 'request-guard', fastify: '5.x', dependencies: ['errors'] },
);

/** Any port of this machine's names will do: no other site can have them, and tunnels change the port. */
function isOwnHost({ headers: { host = '' } }: FastifyRequest, own: URL): boolean {
  if (host.toLowerCase() === own.host) return true;
  const address = `http://${host}`;
  if (!/^[\w.:[\]-]+$/.test(host) || !URL.canParse(address)) return false;
  return isLoopback(new URL(address).hostname);
}

/**
 * Browsers say where a request comes from by Sec-Fetch-Site (W3C Fetch Metadata), under https and at this machine's names;
 * elsewhere by Origin, with what is no GET.
 */
function isFromElsewhere({ headers, method }: FastifyRequest, own: URL): boolean {
  const {
    'sec-fetch-site': site,
    'sec-fetch-mode': mode,
    'sec-fetch-dest': dest,
    origin,
    host = '',
  } = headers;
  if (method === 'GET' || method === 'HEAD') {
    if (site === undefined || site === 'same-origin' || site === 'none') return false;
    // A link to a page may be anywhere.
    return mode !== 'navigate' || dest !== 'document';
  }
  if (site !== undefined) return site !== 'same-origin';
  if (origin === own.origin) return false;
  return (
    origin !== `http://${host.toLowerCase()}` || !isOwnHost({ headers: { host } } as FastifyRequest, own)
  );
}
