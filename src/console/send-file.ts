import type { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';

/** What a run has printed or was given is a file to keep: a browser neither runs nor shows it. */
export const FILE_HEADERS = {
  'content-type': 'application/octet-stream',
  'content-security-policy': "sandbox; default-src 'none'",
};

/** @param name as it was given by whoever made the file (RFC 6266, section 4.3, and RFC 8187) */
export function sendFile(reply: FastifyReply, name: string, body: Readable | string): FastifyReply {
  const last = name.split('/').at(-1) ?? '';
  const plain = last.replace(/[^\w.-]/g, '_') || 'file';
  const encoded = encodeURIComponent(last).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return reply
    .headers(FILE_HEADERS)
    .header('content-disposition', `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`)
    .send(body);
}
