import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';

/**
 * A text, with the tag by which a client recognises it. It is sent as text: of a Buffer, Node would send the headers before the
 * `100 Continue` of a request that came behind another one.
 */
export interface Document {
  text: string;
  etag: string;
}

/** The tag is a strong one: the same tag means the same bytes. */
export function documentOf(text: string): Document {
  return { text, etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"` };
}

/**
 * Answers with a document, or with 304 when the client has it (RFC 9110, section 13.1.2). `@fastify/etag` knows neither lists
 * of tags nor `*`, and hashes each answer anew.
 */
export function sendDocument(
  request: FastifyRequest,
  reply: FastifyReply,
  type: string,
  { text, etag }: Document,
): FastifyReply {
  // Kept, but never used without asking: a document changes with every deployment.
  reply.header('etag', etag).header('cache-control', 'no-cache');
  if (isKnown(request.headers['if-none-match'], etag)) return reply.code(304).send();
  return reply.type(`${type}; charset=utf-8`).send(text);
}

/** Compared weakly, as a proxy that compresses makes weak tags out of strong ones. */
function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  if (ifNoneMatch.trim() === '*') return true;
  return ifNoneMatch.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag);
}
