import type { Readable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import type { ErrorId } from '../../core/errors.ts';
import { EMPTY_PAYLOAD, readJson } from '../../core/payload.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The trigger payload: the exact text of the body, or `{}` when there is none. Not changed by anything. */
    payload: string;
    /** What keeps the body from being read as JSON. Such a body is none that its schema could hold for. */
    bodyProblem: ErrorId | undefined;
    /** The header `content-type`, kept from Fastify. */
    declaredType: string | undefined;
  }
}

/** What Fastify takes every body for. It remembers who reads a type that is named, unlike a missing one. */
const ANY_TYPE = 'application/octet-stream';

/** RFC 8259 knows no parameter of application/json; `charset=utf-8` is harmless and common. */
const JSON_MEDIA_TYPE = /^application\/json[ \t]*(;[ \t]*charset="?utf-?8"?[ \t]*)?;?[ \t]*$/i;

/**
 * Reads request bodies as JSON, and keeps their bytes beside what was parsed. Nothing is refused here: what is wrong with a
 * body is for its schema, and for the preHandler, to say, once the key was found right. Fastify's own parsers, which answer
 * at once, are replaced for the scope this is registered in.
 */
export const payloadPlugin = fastifyPlugin(
  async (app: FastifyInstance) => {
    app.decorateRequest('payload', EMPTY_PAYLOAD);
    app.decorateRequest('bodyProblem', undefined);
    app.decorateRequest('declaredType', undefined);

    // Fastify answers an unparsable content type itself, before any preHandler; so it does not get to see it.
    app.addHook('onRequest', (request, _reply, done) => {
      request.declaredType = request.headers['content-type'];
      request.raw.headers['content-type'] = ANY_TYPE;
      done();
    });

    app.removeAllContentTypeParsers();
    app.addContentTypeParser(ANY_TYPE, (request: FastifyRequest, body: Readable, done) => {
      receive(body, request.routeOptions.bodyLimit, (received) => {
        const parsed = parse(request, received);
        if (typeof parsed !== 'string') return done(null, parsed.value);
        request.bodyProblem = parsed;
        done(null);
      });
    });
  },
  { name: 'payload', fastify: '5.x' },
);

/** Tells once of the bytes of a body. What comes after too many of them is read and thrown away, so that the connection stays usable. */
function receive(body: Readable, limitBytes: number, tell: (received: Buffer | ErrorId) => void): void {
  const chunks: Buffer[] = [];
  let size = 0;
  body.on('data', (chunk: Buffer) => {
    const wasTooLarge = size > limitBytes;
    size += chunk.length;
    if (size <= limitBytes) chunks.push(chunk);
    else if (!wasTooLarge) tell('payload_too_large');
  });
  body.on('end', () => {
    if (size <= limitBytes) tell(Buffer.concat(chunks));
  });
  // A client that goes away in the middle of its body has failed, not the service.
  body.on('error', () => {
    if (size <= limitBytes) tell('bad_request');
  });
}

/** The value of a body that was received, or what is wrong with it. The text of the body becomes the request's payload. */
function parse(request: FastifyRequest, received: Buffer | ErrorId): { value: unknown } | ErrorId {
  const { declaredType, headers } = request;
  if (received.length === 0) return { value: {} };
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') return 'unsupported_content_encoding';
  if (declaredType === undefined || !JSON_MEDIA_TYPE.test(declaredType)) return 'unsupported_media_type';
  if (typeof received === 'string') return received;
  const read = readJson(received);
  if (!read) return 'invalid_json';
  request.payload = read.text;
  return { value: read.value };
}
