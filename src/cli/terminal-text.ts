import { StringDecoder } from 'node:string_decoder';

const ESC = '\u001b';

/** Control characters, and what else moves a cursor, changes the order of letters or takes no room on a screen. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** Those of them that the letters of some languages and pictures consist of. */
const JOINERS = '\u200c\u200d\ufe0e\ufe0f';

const SHORT_FORMS: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/**
 * What others wrote, made fit for a terminal: it shows the characters that it would otherwise act upon, in the way that
 * JSON writes them.
 *
 * @param allowed characters that are sent nevertheless
 */
export function visible(text: string, allowed = ''): string {
  return text.replace(UNSEEN, (character) => {
    if (JOINERS.includes(character) || allowed.includes(character)) return character;
    return SHORT_FORMS[character] ?? character.split('').map(codeUnit).join('');
  });
}

function codeUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** A colour that begins, or the part of one that ends a text; whatever follows an ESC otherwise is no colour. */
const COLOUR = new RegExp(`(${ESC}\\[[\\d;]{0,32}m)`);
const UNFINISHED = new RegExp(`(?:${ESC}(?:\\[[\\d;]{0,32})?|\\r)$`);
const RESET = `${ESC}[0m`;

/**
 * What may be chosen of letters (ECMA-48, "select graphic rendition"): weight, slant, underline and the colours that no
 * terminal has as its background. The rest can hide text.
 */
const HARMLESS_RENDITIONS = new Set(
  [0, 1, 2, 3, 4, 9, 22, 23, 24, 29, 39, ...range(31, 36), ...range(91, 96)].map(String),
);

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

/** What a program printed, chunk by chunk, made fit for a terminal: its lines and colours stay. */
export class ProgramText {
  readonly #decoder = new StringDecoder('utf8');
  #unfinished = '';

  /** The text of a chunk, and of what the one before ended in the middle of. */
  add(chunk: Buffer): string {
    const text = this.#unfinished + this.#decoder.write(chunk);
    this.#unfinished = UNFINISHED.exec(text)?.[0] ?? '';
    return render(text.slice(0, text.length - this.#unfinished.length));
  }

  /** The text of what is left. */
  end(): string {
    const text = this.#unfinished + this.#decoder.end();
    this.#unfinished = '';
    return render(text);
  }
}

/** What is printed next begins without a colour, as it may be somebody else's. */
function render(text: string): string {
  const parts = text.replaceAll('\r\n', '\n').split(COLOUR);
  const rendered = parts.map((part) => (isHarmless(part) ? part : visible(part, '\n\t')));
  const isColoured = parts.findLast(isHarmless) ?? RESET;
  return rendered.join('') + (isColoured === RESET ? '' : RESET);
}

function isHarmless(part: string): boolean {
  if (!COLOUR.test(part)) return false;
  const renditions = part.slice(2, -1).split(';');
  return renditions.every((each) => each === '' || HARMLESS_RENDITIONS.has(each));
}
