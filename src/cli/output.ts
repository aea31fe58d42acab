import { randomUUID } from 'node:crypto';
import { styleText } from 'node:util';
import { ProgramText, visible } from './terminal-text.ts';

/** The command failed; its message is for the user. */
export class CommandError extends Error {
  override name = 'CommandError';
  readonly exitCode: number;

  constructor(message: string, options: ErrorOptions & { exitCode?: number } = {}) {
    super(message, options);
    this.exitCode = options.exitCode ?? 1;
  }
}

/** The command line is invalid. Exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

type Style = Parameters<typeof styleText>[0];

/**
 * Where a command prints: results to `out`, remarks to `err`. On a terminal, control characters are shown instead of sent;
 * pipes get the bytes.
 */
export interface Output {
  /** Lines of a result. */
  out(text: string): void;
  /** Lines of a remark. */
  err(text: string): void;
  /** One line of a result; on a terminal it stays one line, whatever is in it. */
  line(text?: string): void;
  /** Lines of a table; its cells may be styled. */
  table(header: string[], rows: string[][]): void;
  /** A result for programs: one JSON value. */
  json(value: unknown): void;
  /** For the output of one program, which keeps its colours. */
  programOutput(to: 'out' | 'err'): ProgramOutput;
  /** Styles text for a terminal; leaves it alone in a pipe, or when NO_COLOR is set. */
  style(style: Style, text: string): string;
}

export interface ProgramOutput {
  write(data: Buffer): void;
  /** Prints what is left of an incomplete last chunk. */
  end(): void;
}

const ESC = '\u001b';

/** Stands for the ESC of our own styles; an ESC in what others wrote is shown instead. */
const STYLE_MARK = randomUUID();
const OWN_STYLE = new RegExp(`${STYLE_MARK}\\[[\\d;]*m`, 'g');

/** @param noColor whether NO_COLOR is set (no-color.org) */
export function createOutput(
  stdout: NodeJS.WriteStream,
  stderr: NodeJS.WriteStream,
  noColor: boolean,
): Output {
  // A reader such as `head` closes the pipe when it has read enough.
  for (const stream of [stdout, stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  }
  const isColorful = (stdout.isTTY || stderr.isTTY) && !noColor;
  const print = (stream: NodeJS.WriteStream, text: string, allowed: string) => {
    stream.write(
      stream.isTTY ? visible(text, allowed).replaceAll(STYLE_MARK, ESC) : text.replace(OWN_STYLE, ''),
    );
  };
  const line = (text = '') => {
    print(stdout, text, '');
    stdout.write('\n');
  };
  const style = (name: Style, text: string) => {
    if (!isColorful) return text;
    const [begin = '', end = ''] = styleText(name, '|').replaceAll(ESC, STYLE_MARK).split('|');
    return begin + text + end;
  };
  return {
    out: (text) => print(stdout, text, '\n\t'),
    err: (text) => print(stderr, text, '\n\t'),
    line,
    table: (header, rows) => {
      table(header, rows).forEach((text, index) => {
        line(index === 0 ? style('dim', text) : text);
      });
    },
    json: (value) => print(stdout, `${JSON.stringify(value, null, 2)}\n`, '\n'),
    programOutput: (to) => {
      const stream = to === 'out' ? stdout : stderr;
      if (!stream.isTTY) return { write: (data) => void stream.write(data), end: () => undefined };
      const text = new ProgramText();
      return {
        write: (data) => void stream.write(text.add(data)),
        end: () => void stream.write(text.end()),
      };
    },
    style,
  };
}

/** Columns as wide as their widest cell; the last one is not padded. */
export function table(header: string[], rows: string[][]): string[] {
  const lines = [header, ...rows];
  const widthOf = (cell = '') => cell.replace(OWN_STYLE, '').length;
  const widths = header.map((_, column) => Math.max(...lines.map((row) => widthOf(row[column]))));
  const pad = (cell: string, column: number) => cell + ' '.repeat((widths[column] ?? 0) - widthOf(cell));
  return lines.map((row) => [...row.slice(0, -1).map(pad), ...row.slice(-1)].join('  ').trimEnd());
}

/** Names and values, one pair per line, the values aligned. Pairs without a value are left out. */
export function pairs(entries: [string, string | undefined][]): string[] {
  const present = entries.filter((entry): entry is [string, string] => entry[1] !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  return present.map(([name, value]) => `${name.padEnd(width)}  ${value}`);
}
