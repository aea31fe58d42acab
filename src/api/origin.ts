import type { FastifyRequest } from 'fastify';

const HOST = /^[A-Za-z0-9._-]+(:\d{1,5})?$|^\[[0-9A-Fa-f:.]+\](:\d{1,5})?$/;

/** The origin under which the client reached the service: PUBLIC_URL, or what the request says of itself. */
export function originOf(request: FastifyRequest, publicUrl: string | undefined): string {
  if (publicUrl !== undefined) return publicUrl.replace(/\/$/, '');
  // A Host header that is no host name must not get into a document.
  return `${request.protocol}://${HOST.test(request.host) ? request.host : 'localhost'}`;
}
