import { visible } from '../../core/visible-text.ts';

/** Text in one style. */
export interface LogSpan {
  text: string;
  /** Names of CSS classes, separated by spaces; empty for plain text. */
  style: string;
}

const ESC = '\u001b';

/**
 * Line ends and escape sequences (ECMA-48, section 5): control sequences, control strings such as a window's title, and short
 * ones. Lengths are bounded, so that an unfinished one hides little.
 */
const TOKEN = new RegExp(
  `(\\r?\\n|\\r)|${ESC}\\[([0-?]{0,64})[ -/]{0,4}([@-~])|${ESC}[\\]P^_X][^\\u0007\\n\\r${ESC}]{0,2048}(?:\\u0007|${ESC}\\\\)|${ESC}[ -/]{0,4}[0-OQ-WYZ\\\\\`-~]`,
  'g',
);

/** What may become one of them with the text that follows. */
const UNFINISHED = new RegExp(
  `(?:${ESC}(?:\\[[0-?]{0,64}[ -/]{0,4}|[\\]P^_X][^\\u0007\\n\\r${ESC}]{0,2048}${ESC}?|[ -/]{0,4})|\\r)$`,
);

/** Longest tail in which an unfinished sequence is looked for. */
const TAIL = 2100;

/** Renditions that are on or off, by the parameter that sets each (ECMA-48, section 8.3.117). Concealed text is shown. */
const FLAGS: Readonly<Record<number, string>> = {
  1: 'bold',
  2: 'dim',
  3: 'italic',
  4: 'under',
  7: 'inverse',
  9: 'strike',
};
const FLAGS_OFF: Readonly<Record<number, readonly string[]>> = {
  22: ['bold', 'dim'],
  23: ['italic'],
  24: ['under'],
  27: ['inverse'],
  29: ['strike'],
};

/**
 * Turns what a program prints for a terminal into spans for a page: the 16 colours as classes `fg0` to `fg15` and `bg0` to
 * `bg15`, all other colours as the nearest of them, and bold, dim, italic, underlined, inverse and struck text. Other sequences
 * are left out; other control characters are shown. It runs in the console and in the browser.
 */
export class TerminalText {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #flags = new Set<string>();
  #foreground: number | undefined;
  #background: number | undefined;
  #unfinished = '';

  /**
   * Adds bytes, which may end inside a character or a sequence.
   *
   * @returns parts of lines: the first one goes on with the latest line, and each other one begins a line
   */
  add(data: Uint8Array): LogSpan[][] {
    const text = this.#unfinished + this.#decoder.decode(data, { stream: true });
    this.#unfinished = UNFINISHED.exec(text.slice(-TAIL))?.[0] ?? '';
    return this.#render(text.slice(0, text.length - this.#unfinished.length));
  }

  #render(text: string): LogSpan[][] {
    let part: LogSpan[] = [];
    const parts = [part];
    let start = 0;
    const print = (end: number) => {
      if (end <= start) return;
      const style = this.#style();
      const printed = visible(text.slice(start, end), '\t');
      const last = part.at(-1);
      if (last?.style === style) last.text += printed;
      else part.push({ text: printed, style });
    };
    for (const token of text.matchAll(TOKEN)) {
      print(token.index);
      start = token.index + token[0].length;
      const [, lineEnd, parameters, final] = token;
      if (lineEnd !== undefined) {
        part = [];
        parts.push(part);
      } else if (final === 'm') this.#select(parameters ?? '');
    }
    print(text.length);
    return parts;
  }

  /** A background has a text colour of its own, so that no pair of colours hides text. */
  #style(): string {
    const names = [...this.#flags];
    if (this.#background !== undefined) names.push(`bg${this.#background}`);
    else if (this.#foreground !== undefined) names.push(`fg${this.#foreground}`);
    return names.join(' ');
  }

  /** "Select graphic rendition", with the colours of xterm. */
  #select(parameters: string): void {
    if (!/^[\d;:]*$/.test(parameters)) return;
    const codes = parameters.split(/[;:]/).map(Number);
    for (let index = 0; index < codes.length; index++) {
      const code = codes[index] ?? 0;
      if (code === 38 || code === 48) {
        const { colour, length } = extendedColour(codes.slice(index + 1));
        this.#colour(code === 38, colour);
        index += length;
      } else this.#apply(code);
    }
  }

  #apply(code: number): void {
    const on = FLAGS[code];
    if (code === 0) {
      this.#flags.clear();
      this.#foreground = undefined;
      this.#background = undefined;
    } else if (on) this.#flags.add(on);
    else if (FLAGS_OFF[code]) for (const flag of FLAGS_OFF[code]) this.#flags.delete(flag);
    else if (code === 39 || code === 49) this.#colour(code === 39, undefined);
    else if (code >= 30 && code <= 37) this.#foreground = code - 30;
    else if (code >= 40 && code <= 47) this.#background = code - 40;
    else if (code >= 90 && code <= 97) this.#foreground = code - 82;
    else if (code >= 100 && code <= 107) this.#background = code - 92;
  }

  #colour(isForeground: boolean, colour: number | undefined): void {
    if (isForeground) this.#foreground = colour;
    else this.#background = colour;
  }
}

/** @param codes what follows 38 or 48: `5` and one of 256 colours, or `2` and red, green and blue */
function extendedColour([kind, first = 0, second = 0, third = 0]: number[]): {
  colour: number | undefined;
  length: number;
} {
  if (kind === 2) return { colour: nearest(first, second, third), length: 4 };
  if (kind !== 5) return { colour: undefined, length: 0 };
  if (first < 16) return { colour: first, length: 2 };
  if (first > 231) return { colour: nearest(...grey((first - 232) * 10 + 8)), length: 2 };
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = first - 16;
  const [red, green, blue] = [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level);
  return { colour: nearest(red, green, blue), length: 2 };
}

function grey(value: number): [number, number, number] {
  return [value, value, value];
}

/** The one of the 16 colours that looks most like a colour of 0 to 255 each. */
function nearest(red = 0, green = 0, blue = 0): number {
  const most = Math.max(red, green, blue);
  const least = Math.min(red, green, blue);
  if (most - least < 40) {
    if (most < 64) return 0;
    if (most < 150) return 8;
    return most < 220 ? 7 : 15;
  }
  const isOn = (value: number) => (value - least) * 2 > most - least;
  return (isOn(red) ? 1 : 0) + (isOn(green) ? 2 : 0) + (isOn(blue) ? 4 : 0) + (most > 215 ? 8 : 0);
}
