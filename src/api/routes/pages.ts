import { fastifyAccepts } from '@fastify/accepts';
import { fastifyHelmet } from '@fastify/helmet';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ApiError } from '../../core/errors.ts';
import { htmlWithOrigin, type Site, withOrigin } from '../../pages/site.ts';
import { documentOf, sendDocument } from '../documents.ts';
import { oncePerOrigin, originOf } from '../origin.ts';

interface PagesOptions {
  site: Site;
  publicUrl?: string;
}

/**
 * Markdown comes first, for who has no preference: that is a program, an agent or a person at a terminal, never a
 * browser. Naming the charset is no reason to be refused.
 */
const FORMS = ['text/markdown', 'text/markdown;charset=utf-8', 'text/html', 'text/html;charset=utf-8'];

/** The public pages as HTML and as Markdown, and what the HTML loads. */
export async function pagesRoutes(app: FastifyInstance, { site, publicUrl }: PagesOptions) {
  await app.register(fastifyAccepts);
  await app.register(fastifyHelmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        styleSrc: ["'self'"],
        scriptSrc: ["'self'"],
        imgSrc: ["'self'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        frameAncestors: ["'none'"],
      },
    },
    // Browsers complain about these two at an origin without TLS, where they mean nothing.
    crossOriginOpenerPolicy: false,
    originAgentCluster: false,
    // Whether the origin is reached by TLS is for whoever terminates TLS to say.
    strictTransportSecurity: false,
  });

  for (const page of site.pages) {
    const { path, twin } = page;
    const html = oncePerOrigin((origin) => documentOf(htmlWithOrigin(page.html, origin)));
    const markdown = oncePerOrigin((origin) => documentOf(withOrigin(page.markdown, origin)));
    const linkToHtml = `<${path}>; rel="alternate"; type="text/html"`;
    const linkToMarkdown = `<${twin}>; rel="alternate"; type="text/markdown"`;

    app.get(path, async (request, reply) => {
      const form = preferredForm(request);
      const origin = originOf(request, publicUrl);
      reply.header('vary', 'Accept');
      if (form === 'text/html') {
        return sendDocument(request, reply.header('link', linkToMarkdown), form, html(origin));
      }
      reply.header('link', linkToHtml).header('content-location', twin);
      return sendDocument(request, reply, form, markdown(origin));
    });

    app.get(twin, async (request, reply) =>
      sendDocument(
        request,
        reply.header('link', linkToHtml),
        'text/markdown',
        markdown(originOf(request, publicUrl)),
      ),
    );
  }

  const moved = site.pages.filter(({ path }) => path !== '/').map(({ path }) => [`${path}/`, path] as const);
  // Browsers and feed readers that do not look at a page ask for this icon.
  for (const [from, to] of [...moved, ['/favicon.ico', '/assets/icon.svg'] as const]) {
    app.get(from, async (_, reply) => reply.header('cache-control', 'no-cache').redirect(to, 308));
  }

  for (const [path, { type, text }] of Object.entries(site.assets)) {
    const asset = documentOf(text);
    app.get(path, async (request, reply) => sendDocument(request, reply, type, asset));
  }
}

/** What the client likes best (RFC 9110, section 12.5.1). */
function preferredForm(request: FastifyRequest): 'text/markdown' | 'text/html' {
  const isAsked = request.headers.accept?.trim() !== '';
  const form = isAsked ? request.accepts().type(FORMS) : 'text/markdown';
  if (typeof form !== 'string') throw new ApiError('not_acceptable', { headers: { vary: 'Accept' } });
  return form.startsWith('text/html') ? 'text/html' : 'text/markdown';
}
