/** Characters that take two columns, of the scripts and symbols in which texts are written (Unicode Standard Annex 11). */
const WIDE =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Emoji_Presentation}\u3000-\u303e\uff01-\uff60\uffe0-\uffe6]/u;

/** Characters that take none: they belong to the one before. */
const JOINED = /\p{M}|\u200c|\u200d|\ufe0e|\ufe0f/u;

/** How many columns of a terminal a text takes. */
export function widthOf(text: string): number {
  // Most texts are ASCII.
  if (/^[ -~]*$/.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

/** The beginning of a text that is too wide, with an ellipsis. @param width columns */
export function cut(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let left = width - 1;
  let beginning = '';
  for (const character of text) {
    left -= characterWidth(character);
    if (left < 0) break;
    beginning += character;
  }
  return `${beginning}…`;
}

function characterWidth(character: string): number {
  if (JOINED.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}
