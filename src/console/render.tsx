import type { FastifyReply } from 'fastify';
import type { ComponentChildren, JSX } from 'preact';
import { renderToString } from 'preact-render-to-string';
import { readAssets } from './asset-files.ts';
import { Layout, type Section } from './views/layout.tsx';

export interface PageOptions {
  /** What the page shows, for the browser's tab: `fix-ci`. */
  title: string;
  /** The entry of the navigation that the page belongs to. */
  section?: Section;
  /** HTTP status. Default: 200. */
  statusCode?: number;
}

/** Answers with a page: a view within the layout, for the operator of the request. */
export function render(
  reply: FastifyReply,
  { title, section, statusCode = 200 }: PageOptions,
  body: ComponentChildren,
): FastifyReply {
  const html = renderToString(
    <Layout title={title} section={section} operator={reply.request.operator} assets={readAssets().hrefs}>
      {body}
    </Layout>,
  );
  return reply.code(statusCode).type('text/html; charset=utf-8').send(`<!doctype html>${html}`);
}

/** A part of a page as HTML, for events that replace it. */
export function renderFragment(view: JSX.Element): string {
  return renderToString(view);
}
