import { isUtf8 } from 'node:buffer';
import type { Readable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { ApiError, type ErrorId } from '../../core/errors.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The body as it arrived; see {@link triggerPayload}. Absent outside the payload plugin's scope. */
    received: ReceivedBody | undefined;
    /** The header `content-type`, kept from Fastify until the key is judged. */
    declaredType: string | undefined;
  }
}

/** A body that was read, or what kept it from being read. */
type ReceivedBody = { bytes: Buffer } | { problem: ErrorId };

const EMPTY_PAYLOAD = '{}';

/** What Fastify takes every body for. It remembers who reads a type that is named, unlike a missing one. */
const ANY_TYPE = 'application/octet-stream';

/** RFC 8259 knows no parameter of application/json; `charset=utf-8` is harmless and common. */
const JSON_MEDIA_TYPE = /^application\/json[ \t]*(;[ \t]*charset="?utf-?8"?[ \t]*)?;?[ \t]*$/i;

/** A body over the limit is read on up to this many bytes before it is answered, so that its connection stays usable. */
const DISCARD_BYTES = 8 * 1024 * 1024;

/**
 * Reads request bodies without judging them: whatever is wrong with one is said only after the key was found right.
 * Fastify's own parsers, which answer at once, are replaced for the scope this is registered in.
 */
export const payloadPlugin = fastifyPlugin(
  async (app: FastifyInstance) => {
    app.decorateRequest('received', undefined);
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
        request.received = received;
        done(null);
      });
    });
  },
  { name: 'payload', fastify: '5.x' },
);

/** Leaving the loop over a stream would destroy the connection, so that the end of a body without end is listened for. */
function receive(body: Readable, limitBytes: number, callback: (received: ReceivedBody) => void): void {
  const chunks: Buffer[] = [];
  let size = 0;
  let isDone = false;
  const done = (received: ReceivedBody) => {
    if (!isDone) callback(received);
    isDone = true;
  };
  body.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size <= limitBytes) chunks.push(chunk);
    else chunks.length = 0;
    if (size > limitBytes + DISCARD_BYTES) done({ problem: 'payload_too_large' });
  });
  body.on('end', () => {
    const [first, second] = chunks;
    if (size > limitBytes) done({ problem: 'payload_too_large' });
    else done({ bytes: first && !second ? first : Buffer.concat(chunks, size) });
  });
  // A client that goes away in the middle of its body has failed, not the service.
  body.on('error', () => done({ problem: 'bad_request' }));
}

/**
 * The trigger payload of a request: the exact text of its body once that is known to be one JSON object in UTF-8, or
 * `{}` when there is no body. The text is checked, never changed: what the caller sent is what the run gets.
 *
 * @throws ApiError that says what is wrong with the body
 */
export function triggerPayload(request: FastifyRequest): string {
  const { received, declaredType, headers } = request;
  if (received === undefined || ('bytes' in received && received.bytes.length === 0)) return EMPTY_PAYLOAD;
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new ApiError('unsupported_content_encoding');
  }
  if (declaredType === undefined || !JSON_MEDIA_TYPE.test(declaredType)) {
    throw new ApiError('unsupported_media_type');
  }
  if ('problem' in received) throw new ApiError(received.problem);
  return jsonObjectText(received.bytes);
}

function jsonObjectText(bytes: Buffer): string {
  if (!isUtf8(bytes)) throw new ApiError('invalid_json');
  const text = bytes.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ApiError('invalid_json', { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ApiError('invalid_payload');
  return text;
}
