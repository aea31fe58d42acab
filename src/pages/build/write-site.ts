import { readFile, writeFile } from 'node:fs/promises';
import { llmsFullTxt, llmsTxt } from '../llms.ts';
import { SITE_FILE, type Site } from '../site.ts';
import { readPages, SOURCE } from './pages.ts';
import { renderHtml } from './render.ts';

/** Build step: renders the public pages into {@link SITE_FILE}; the service itself needs no renderer. */
const pages = await readPages();
const asset = (name: string) => readFile(new URL(`assets/${name}`, SOURCE), 'utf8');

const site: Site = {
  pages: pages.map((page) => ({ ...page, html: renderHtml(page) })),
  texts: { '/llms.txt': llmsTxt(pages), '/llms-full.txt': llmsFullTxt(pages) },
  assets: {
    '/assets/page.css': { type: 'text/css', text: (await asset('tokens.css')) + (await asset('page.css')) },
    '/assets/page.js': { type: 'text/javascript', text: await asset('page.js') },
    '/assets/icon.svg': { type: 'image/svg+xml', text: await asset('icon.svg') },
  },
};
await writeFile(SITE_FILE, JSON.stringify(site));
