import { type BundledLanguage, createCssVariablesTheme, createHighlighter } from 'shiki';
import { BASE_URL } from '../page.ts';

const LANGUAGES: BundledLanguage[] = ['groovy', 'js', 'json', 'python', 'sh', 'ts', 'yaml'];

/** A theme that gives tokens their kind instead of a colour. */
const THEME = createCssVariablesTheme({ name: 'kinds', variablePrefix: '', fontStyle: false });

const highlighter = await createHighlighter({ themes: [THEME], langs: LANGUAGES });

const BASE_URL_WORD = 'originOfTheService';

/** Classes in page.css of the tokens that get a colour. */
const CLASSES: Readonly<Record<string, string>> = {
  'var(token-comment)': 'c',
  'var(token-constant)': 'd',
  'var(token-function)': 'f',
  'var(token-keyword)': 'k',
  'var(token-string-expression)': 's',
};

/** Code as HTML. Code in an unknown language is only escaped. */
export function highlight(code: string, language: string): string {
  const lang = LANGUAGES.find((each) => each === language);
  if (lang === undefined) return escapeHtml(code);
  // The highlighter splits a URL into several tokens, but not a word.
  const lines = highlighter.codeToTokensBase(code.replaceAll(BASE_URL, BASE_URL_WORD), {
    lang,
    theme: THEME,
  });
  const html = lines.map((tokens) => tokens.map(renderToken).join('')).join('\n');
  return html.replaceAll(BASE_URL_WORD, BASE_URL);
}

function renderToken({ content, color = '' }: { content: string; color?: string | undefined }): string {
  // Operators keep the colour of text.
  const kind = /\w/.test(content) ? CLASSES[color] : undefined;
  const html = escapeHtml(content);
  return kind === undefined ? html : `<span class="${kind}">${html}</span>`;
}

export function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

/** Text as the value of an attribute. */
export function escapeAttribute(text: string): string {
  return escapeHtml(text).replaceAll('"', '&quot;');
}
