import { stripVTControlCharacters } from 'node:util';
import { visible } from '../core/visible-text.ts';

/** How much of the end of an output is held, in bytes. */
const HELD_BYTES = 4096;

/** Maximum length of a line, in characters. */
const MAX_LENGTH = 300;

/** Lines that follow what went wrong: frames of a JavaScript stack, and mere punctuation. */
const SAYS_LITTLE = /^(\s+at .*|[^\p{L}\p{N}]*)$/u;

/** What Node prints last when a program crashes, after the stack and the fields of the error, which are indented. */
const CRASH_OF_NODE = /^Node\.js v[\d.]+$/;

/** The last line of an output that comes in pieces. */
export class LastLine {
  #held = Buffer.alloc(0);
  #isCut = false;

  add(data: Buffer): void {
    const all = data.length >= HELD_BYTES ? data : Buffer.concat([this.#held, data]);
    this.#isCut ||= all.length > HELD_BYTES || all === data;
    // A copy, so that a large piece is not held for its end.
    this.#held = Buffer.from(all.subarray(-HELD_BYTES));
  }

  /**
   * One line of at most 300 characters, safe for a terminal and without its colours: the last line that says something, else
   * the last that is not blank.
   */
  text(): string | undefined {
    const lines = stripVTControlCharacters(this.#held.toString())
      .split(/[\r\n]+/)
      .map((line, index) => (index === 0 && this.#isCut ? `…${line.replace(/^\ufffd+/, '')}` : line))
      .filter((line) => line.trim() !== '');
    const last = lines.at(-1);
    if (last === undefined) return undefined;
    const isCrash = CRASH_OF_NODE.test(last);
    const says = (each: string) => !SAYS_LITTLE.test(each) && !(isCrash && /^\s|^Node/.test(each));
    const line = lines.findLast(says) ?? last;
    const text = visible(line.trim().replace(/\s+/g, ' '));
    if (text.length <= MAX_LENGTH) return text;
    // No half of a character that has two.
    return `${text.slice(0, MAX_LENGTH - 1).replace(/[\ud800-\udbff]$/, '')}…`;
  }
}
