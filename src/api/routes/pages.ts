import { createHash } from 'node:crypto';
import { fastifyAccepts } from '@fastify/accepts';
import { fastifyHelmet } from '@fastify/helmet';
import type { FastifyInstance } from 'fastify';
import { homePage } from '../../pages/home.ts';
import { PAGE_STYLE, renderHtml } from '../../pages/render.ts';
import { oncePerOrigin, originOf } from '../origin.ts';

const STYLE_HASH = `'sha256-${createHash('sha256').update(PAGE_STYLE).digest('base64')}'`;

/** The public pages: Markdown for who asks for it, HTML for browsers (RFC 9110, section 12.5.1). */
export async function pagesRoutes(app: FastifyInstance, { publicUrl }: { publicUrl?: string }) {
  await app.register(fastifyAccepts);
  await app.register(fastifyHelmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        styleSrc: [STYLE_HASH],
        baseUri: ["'none'"],
        frameAncestors: ["'none'"],
      },
    },
    // Whether the origin is reached by TLS is for whoever terminates TLS to say.
    strictTransportSecurity: false,
  });

  for (const page of [homePage]) {
    const markdown = oncePerOrigin((origin) => page.markdown(origin));
    const html = oncePerOrigin((origin) => renderHtml(page, origin));
    app.get(page.path, async (request, reply) => {
      const origin = originOf(request, publicUrl);
      const type = request.accepts().type(['html', 'text/markdown']);
      reply.header('vary', 'Accept');
      return type === 'text/markdown'
        ? reply.type('text/markdown; charset=utf-8').send(markdown(origin))
        : reply.type('text/html; charset=utf-8').send(html(origin));
    });
  }
}
