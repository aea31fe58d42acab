import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';

/** Forms are the only bodies that the console reads. Everything else is answered 415. */
export const formsPlugin = fastifyPlugin(
  async (app: FastifyInstance) => {
    app.removeAllContentTypeParsers();
    app.addContentTypeParser(
      'application/x-www-form-urlencoded',
      { parseAs: 'string' },
      (_request, body, done) => {
        done(null, new URLSearchParams(String(body)));
      },
    );
  },
  { name: 'forms', fastify: '5.x' },
);

/** The fields of a form that was sent; none without a body. */
export function formOf({ body }: FastifyRequest): URLSearchParams {
  return body instanceof URLSearchParams ? body : new URLSearchParams();
}
