import { Marked } from 'marked';
import { BASE_URL, type Page } from '../page.ts';
import { escapeAttribute, escapeHtml, highlight } from './highlight.ts';

/** Code to copy is in one of these languages, or has a file name after the language. Other blocks are answers. */
const LANGUAGE_NAMES: Readonly<Record<string, string>> = {
  groovy: 'Groovy',
  python: 'Python',
  sh: 'Shell',
  text: 'Text',
  ts: 'TypeScript',
  yaml: 'YAML',
};

/** A page with at least this many sections has a table of contents. */
const MIN_SECTIONS_LISTED = 5;

/** A list of a page's sections, which Markdown needs; HTML has the table of contents. */
const SECTION_LIST = /<ul>\n(?:<li>\d{3} <a href="#\w+"><code>\w+<\/code><\/a><\/li>\n)+<\/ul>\n/;

const NAVIGATION = [
  ['/docs', 'Docs'],
  ['/docs/recipes', 'Recipes'],
  ['/docs/events', 'Events'],
  ['/docs/errors', 'Errors'],
  ['/docs/operate', 'Operate'],
] as const;

/** A page as a complete HTML document. {@link BASE_URL} stays where the origin is shown; links are relative to it. */
export function renderHtml({ path, twin, title, description, markdown }: Page): string {
  const { body, sections } = renderBody(markdown);
  const navigation = NAVIGATION.map(
    ([href, text]) => `<a href="${href}"${href === path ? ' aria-current="page"' : ''}>${text}</a>`,
  );
  const contents = `<nav class="toc" aria-label="On this page">
<ul>${sections.map(({ id, html }) => `<li><a href="#${id}">${html}</a></li>`).join('')}</ul>
</nav>
`;
  const hasContents = sections.length >= MIN_SECTIONS_LISTED;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<meta name="description" content="${escapeAttribute(description)}">
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/page.css">
<link rel="alternate" type="text/markdown" href="${twin}">
<script src="/assets/page.js" type="module"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<a class="brand" href="/"><img src="/assets/icon.svg" alt="" width="26" height="26">orc</a>
<nav aria-label="Pages">${navigation.join('\n')}</nav>
</header>
<main id="main" tabindex="-1">
${hasContents ? body.replace(SECTION_LIST, '').replace('<h2', () => `${contents}<h2`) : body}</main>
<footer>
<a href="${twin}">This page as Markdown</a>
<a href="/openapi.json">OpenAPI</a>
<a href="/llms.txt">llms.txt</a>
</footer>
</body>
</html>
`;
}

function renderBody(markdown: string) {
  const sections: { id: string; html: string }[] = [];
  const marked = new Marked({
    async: false,
    renderer: {
      heading({ tokens, depth }) {
        const html = this.parser.parseInline(tokens);
        if (depth === 1) return `<h1>${html}</h1>\n`;
        // An error's heading begins with its status; its anchor is its identifier.
        const [, status, error] = /^(\d{3}) (\w+)$/.exec(html) ?? [];
        const id = error ?? anchorOf(html);
        const shown = error === undefined ? html : `<span class="status">${status}</span> ${error}`;
        if (depth === 2) sections.push({ id, html });
        return `<h${depth} id="${id}"><a href="#${id}">${shown}</a></h${depth}>\n`;
      },
      code({ text, lang = '' }) {
        const [language = '', file] = lang.split(' ');
        const name = file ?? LANGUAGE_NAMES[language];
        const block =
          name === undefined ? 'class="answer"' : `class="code" data-language="${escapeAttribute(name)}"`;
        // A scrolling element must be reachable by keyboard; answers wrap instead.
        const pre = name === undefined ? '<pre>' : '<pre tabindex="0">';
        return `<div ${block}>${pre}<code>${highlight(text, language)}</code></pre></div>\n`;
      },
      link({ href, tokens }) {
        const target = href === BASE_URL ? '/' : href.replace(`${BASE_URL}/`, '/');
        return `<a href="${escapeAttribute(target)}">${this.parser.parseInline(tokens)}</a>`;
      },
      table(token) {
        const row = (cells: typeof token.header, tag: string) =>
          `<tr>${cells.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`).join('')}</tr>\n`;
        const rows = token.rows.map((cells) => row(cells, 'td')).join('');
        // A scrolling element must be reachable by keyboard, and a focusable one needs a name.
        const label = token.header.map(({ text }) => text).join(', ');
        return `<div class="table" tabindex="0" role="region" aria-label="Table of ${escapeAttribute(label)}"><table>
<thead>${row(token.header, 'th')}</thead><tbody>${rows}</tbody></table></div>\n`;
      },
    },
  });
  const body = marked.parse(markdown) as string;
  return { body, sections };
}

/** The anchor of a heading, as GitHub would name it. */
function anchorOf(html: string): string {
  return html
    .toLowerCase()
    .replace(/<[^>]*>|[^a-z0-9 _-]/g, '')
    .replaceAll(' ', '-');
}
