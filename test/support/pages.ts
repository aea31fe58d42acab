/** Where links of a Markdown or HTML text lead. */
export function linksIn(text: string): string[] {
  const links = text.matchAll(/\]\(([^)\s]+)\)|\s(?:href|src)="([^"]+)"/g);
  return [...links].map(([, markdown, html]) => markdown ?? html ?? '');
}

/** The anchors of an HTML text. */
export function anchorsIn(html: string): string[] {
  return [...html.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id ?? '');
}

export interface CodeBlock {
  language: string;
  /** Name of the file that the block is the content of. */
  file: string | undefined;
  code: string;
}

/** The fenced code of a Markdown text. */
export function codeBlocksIn(markdown: string): CodeBlock[] {
  return [...markdown.matchAll(/^```(\w+)(?: (\S+))?\n(.*?)^```$/gms)].map(
    ([, language = '', file, code = '']) => ({ language, file, code }),
  );
}

/** The only block of a text that satisfies the test. */
export function codeBlock(markdown: string, test: (block: CodeBlock) => boolean): string {
  const [block, ...others] = codeBlocksIn(markdown).filter(test);
  if (!block || others.length > 0) throw new Error(`${block ? 'more than one' : 'no'} code block matches`);
  return block.code;
}
