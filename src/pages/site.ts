import { readFileSync } from 'node:fs';
import { PACKAGE_ROOT } from '../core/package-root.ts';
import { BASE_URL, type Page } from './page.ts';

/** Where the build step puts what it has made of the pages. */
export const SITE_FILE = new URL('dist/site.json', PACKAGE_ROOT);

/** What the build step has made of the pages. {@link BASE_URL} stands in it for the origin. */
export interface Site {
  pages: (Page & { html: string })[];
  /** For programs and AI agents, by path. */
  texts: Record<string, string>;
  /** What the HTML pages load, by path. */
  assets: Record<string, { type: string; text: string }>;
}

/**
 * Reads the rendered pages.
 *
 * @throws when they were not built
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

/** HTML of the site with the origin filled in: PUBLIC_URL may hold characters that mean something there. */
export function htmlWithOrigin(html: string, origin: string): string {
  return withOrigin(html, origin.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;'));
}
