import type { FastifyRequest } from 'fastify';
import { LruMap } from 'toad-cache';

/** A service has few origins; a client that invents others only makes their texts be rendered anew. */
const MAX_ORIGINS = 16;

/** A name, or an address, with a port or without one; names within a network may have underscores (RFC 1123, section 2.1). */
const HOST = /^(\w([\w-]{0,61}\w)?(\.|(?=:|$)))+(:\d{1,5})?$|^\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?$/;

/** A host is repeated in texts that are kept. The longest name has 253 characters, and a port five more. */
const MAX_HOST_LENGTH = 259;

/** The origin under which the client reached the service: PUBLIC_URL, or what the request says of itself. */
export function originOf(request: FastifyRequest, publicUrl: string | undefined): string {
  if (publicUrl !== undefined) return publicUrl.replace(/\/$/, '');
  const { protocol, host, headers } = request;
  // Nothing but an origin must get into a document, whatever a client or a proxy says.
  const scheme = protocol.toLowerCase() === 'https' ? 'https' : 'http';
  return `${scheme}://${[host, headers.host].find(isHost) ?? 'localhost'}`;
}

function isHost(text: string | undefined): boolean {
  if (text === undefined || text.length > MAX_HOST_LENGTH || !HOST.test(text)) return false;
  return URL.canParse(`http://${text}`);
}

/** Renders something once for each origin and remembers it: anybody may ask for it, as often as they like. */
export function oncePerOrigin<T>(render: (origin: string) => T): (origin: string) => T {
  const rendered = new LruMap<T>(MAX_ORIGINS);
  return (origin) => {
    const known = rendered.get(origin) ?? render(origin);
    rendered.set(origin, known);
    return known;
  };
}
