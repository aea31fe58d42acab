import type { FastifyRequest } from 'fastify';
import { LruMap } from 'toad-cache';

/** A service has few origins; a client that invents others only makes their texts be rendered anew. */
const MAX_ORIGINS = 16;

/** No longer than a host name can be (RFC 1035, section 2.3.4): it is repeated in texts that are kept. */
const HOST = /^[A-Za-z0-9._-]{1,253}(:\d{1,5})?$|^\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?$/;

/** The origin under which the client reached the service: PUBLIC_URL, or what the request says of itself. */
export function originOf(request: FastifyRequest, publicUrl: string | undefined): string {
  if (publicUrl !== undefined) return publicUrl.replace(/\/$/, '');
  // A Host header that is no host name must not get into a document.
  return `${request.protocol}://${HOST.test(request.host) ? request.host : 'localhost'}`;
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
