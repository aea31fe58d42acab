import { readFileSync } from 'node:fs';
import { PACKAGE_ROOT } from '../core/package-root.ts';
import { BASE_URL, type Page } from './page.ts';

/** Output of the build step that renders the pages. */
export const SITE_FILE = new URL('dist/site.json', PACKAGE_ROOT);

/** The rendered pages; {@link BASE_URL} stands for the origin. */
export interface Site {
  pages: (Page & { html: string })[];
  /** For programs and AI agents, by path. */
  texts: Record<string, string>;
  /** Files that the HTML pages load, by path. */
  assets: Record<string, { type: string; text: string }>;
}

/**
 * Reads the rendered pages.
 *
 * @throws when the pages are not built
 */
export function readSite(): Site {
  try {
    return JSON.parse(readFileSync(SITE_FILE, 'utf8')) as Site;
  } catch (cause) {
    throw new Error('The pages are not built. Run `npm run build`.', { cause });
  }
}

/** A text of the site with the origin of the service filled in. */
export function withOrigin(text: string, origin: string): string {
  return text.replaceAll(BASE_URL, () => origin);
}

/** HTML of the site with the origin filled in and escaped: PUBLIC_URL may hold characters that HTML interprets. */
export function htmlWithOrigin(html: string, origin: string): string {
  return withOrigin(html, origin.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;'));
}
