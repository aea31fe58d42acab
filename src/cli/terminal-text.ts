import { StringDecoder } from 'node:string_decoder';
import { visible } from '../core/visible-text.ts';

const ESC = '\u001b';

/** A complete colour sequence, and an incomplete one at the end of a text. */
const COLOUR = new RegExp(`(${ESC}\\[[\\d;]{0,32}m)`);
const UNFINISHED = new RegExp(`(?:${ESC}(?:\\[[\\d;]{0,32})?|\\r)$`);
const RESET = `${ESC}[0m`;

/**
 * Allowed styles (ECMA-48, "select graphic rendition"): weight, slant, underline and colours that no terminal uses as its
 * background. The others can hide text.
 */
const HARMLESS_RENDITIONS = new Set(
  [0, 1, 2, 3, 4, 9, 22, 23, 24, 29, 39, ...range(31, 36), ...range(91, 96)].map(String),
);

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

/** Makes a program's output safe for a terminal, chunk by chunk; lines and colours stay. */
export class ProgramText {
  readonly #decoder = new StringDecoder('utf8');
  #unfinished = '';

  /** The text of a chunk, with the incomplete end of the one before. */
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

/** Ends with a colour reset: the next output may be another program's. */
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
