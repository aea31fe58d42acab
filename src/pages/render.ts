import { Marked } from 'marked';
import type { Page } from './page.ts';

/** The pages' stylesheet; the content security policy allows it by its hash. */
export const PAGE_STYLE = `
:root{color-scheme:light dark}
body{font:1.05rem/1.6 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{padding:.8rem 1rem;overflow-x:auto;border-radius:.4rem;background:color-mix(in srgb,currentColor 8%,transparent)}
table{display:block;overflow-x:auto;border-collapse:collapse}
td,th{padding:.3rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}`;

const marked = new Marked({
  async: false,
  renderer: {
    heading({ tokens, depth }) {
      const html = this.parser.parseInline(tokens);
      const id = html
        .toLowerCase()
        .replace(/<[^>]*>|[^a-z0-9 -]/g, '')
        .replace(/ /g, '-');
      return `<h${depth} id="${id}">${html}</h${depth}>\n`;
    },
  },
});

/** A page as a complete HTML document. */
export function renderHtml(page: Page, origin: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${page.title}</title>
<link rel="alternate" type="text/markdown" href="${page.path}">
<style>${PAGE_STYLE}</style>
</head>
<body>
<main>
${marked.parse(page.markdown(origin)) as string}</main>
</body>
</html>
`;
}
