import { randomUUID } from 'node:crypto';
import type { Readable, Writable } from 'node:stream';
import { styleText } from 'node:util';
import { formatAge } from '../core/age.ts';
import { InputError } from '../core/input-error.ts';
import { visible } from '../core/visible-text.ts';
import { ProgramText } from './terminal-text.ts';
import { cut, widthOf } from './text-width.ts';

interface CommandErrorOptions extends ErrorOptions {
  exitCode?: number;
  /** What programs know the error by; snake_case. */
  error?: string;
  /** What to do next: sentences that people read after the message, and programs as `hint`. */
  hint?: string;
}

/** The command failed; its message is for the user. */
export class CommandError extends Error {
  override name = 'CommandError';
  readonly exitCode: number;
  readonly error: string;
  readonly hint: string | undefined;

  constructor(
    message: string,
    { exitCode = 1, error = 'failed', hint, ...options }: CommandErrorOptions = {},
  ) {
    super(message, options);
    this.exitCode = exitCode;
    this.error = error;
    this.hint = hint;
  }
}

/** The command line is invalid. Exit code 2. */
export class UsageError extends InputError {
  override name = 'UsageError';
}

/** A stream that may be a terminal's. */
export type TerminalInput = Readable & { isTTY?: boolean };
export type TerminalOutput = Writable & { isTTY?: boolean; columns?: number };

/** Columns of a terminal that does not say how many it has, or says 0. */
const DEFAULT_COLUMNS = 80;

/** Between two columns of a table. */
const GAP = '  ';

/** A column of a table is not made narrower than this. */
const LEAST_WIDTH = 4;

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
  /** Lines of a table; its cells may be styled. On a terminal, cells are shortened so that no line wraps. */
  table(header: string[], rows: string[][]): void;
  /** A table whose rows come in parts, of which there may be any number. */
  openTable(header: string[]): { rows(rows: string[][]): void };
  /** A result for programs: one JSON value. */
  json(value: unknown): void;
  /** The same for a list whose items come in parts. */
  openJsonList(): { items(items: unknown[]): void; end(): void };
  /** An error for programs: one JSON value in one line of standard error. */
  jsonError(value: unknown): void;
  /** A time in a table: for people how long ago it was, for pipes in ISO 8601. */
  time(time: Date): string;
  /** Whether people read the results. */
  isTerminal: boolean;
  /** Whether nobody reads the results any more. */
  isClosed(): boolean;
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
const STYLED = new RegExp(`^((?:${OWN_STYLE.source})*).*?((?:${OWN_STYLE.source})*)$`, 's');

/** @param noColor whether NO_COLOR is set (no-color.org) */
export function createOutput(stdout: TerminalOutput, stderr: TerminalOutput, noColor: boolean): Output {
  // A reader such as `head` closes the pipe when it has read enough.
  let isClosed = false;
  for (const stream of [stdout, stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      isClosed ||= stream === stdout;
    });
  }
  const isTerminal = stdout.isTTY === true;
  const isColorful = (stdout.isTTY || stderr.isTTY) && !noColor;
  const print = (stream: TerminalOutput, text: string, allowed: string) => {
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
  const openTable = (header: string[]) => {
    const add = tableLines(header, isTerminal ? stdout.columns || DEFAULT_COLUMNS : undefined);
    let isFirst = true;
    return {
      rows: (rows: string[][]) => {
        for (const text of add(rows)) {
          line(isFirst ? style('dim', text) : text);
          isFirst = false;
        }
      },
    };
  };
  const openJsonList = () => {
    let isEmpty = true;
    return {
      items: (items: unknown[]) => {
        for (const item of items) {
          const text = JSON.stringify(item, null, 2).replace(/^/gm, '  ');
          print(stdout, `${isEmpty ? '[' : ','}\n${text}`, '\n');
          isEmpty = false;
        }
      },
      end: () => void stdout.write(isEmpty ? '[]\n' : '\n]\n'),
    };
  };
  return {
    out: (text) => print(stdout, text, '\n\t'),
    err: (text) => print(stderr, text, '\n\t'),
    line,
    table: (header, rows) => openTable(header).rows(rows),
    openTable,
    json: (value) => print(stdout, `${JSON.stringify(value, null, 2)}\n`, '\n'),
    openJsonList,
    jsonError: (value) => print(stderr, `${JSON.stringify(value)}\n`, '\n'),
    time: (time) => (isTerminal ? formatAge(time) : time.toISOString()),
    isTerminal,
    isClosed: () => isClosed,
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

/**
 * Lays out a table whose rows come in parts: columns as wide as their widest cell so far, the last one not padded.
 *
 * @param columns how wide a line may be; then control characters are made visible, and wider cells end in "…"
 * @returns makes the lines of the next rows; the first ones come after the header
 */
export function tableLines(header: string[], columns?: number): (rows: string[][]) => string[] {
  let widths = header.map(() => 0);
  let isFirst = true;
  return (rows) => {
    const added = isFirst ? [header, ...rows] : rows;
    const lines = columns === undefined ? added : added.map((row) => row.map((cell) => visible(cell)));
    isFirst = false;
    widths = widths.map((width, column) =>
      lines.reduce((widest, row) => Math.max(widest, cellWidth(row[column])), width),
    );
    if (columns !== undefined) widths = fitted(widths, columns);
    return lines.map((row) =>
      row
        .map((cell, column) => fill(cell, widths[column] ?? 0))
        .join(GAP)
        .trimEnd(),
    );
  };
}

/** The widths with which a line fits: the widest columns give first, and the first column, which names the row, last. */
function fitted(widths: readonly number[], columns: number): number[] {
  const room = columns - GAP.length * (widths.length - 1);
  const fitting = widths.map((width) => Math.min(width, room));
  const shrink = (candidates: readonly number[]): boolean => {
    const widest = Math.max(...candidates.map((column) => fitting[column] ?? 0));
    if (widest <= LEAST_WIDTH) return false;
    const column = candidates.findLast((each) => fitting[each] === widest) ?? 0;
    fitting[column] = widest - 1;
    return true;
  };
  const [first = 0, ...others] = fitting.keys();
  while (fitting.reduce((sum, width) => sum + width, 0) > room) {
    if (!shrink(others) && !shrink([first])) break;
  }
  return fitting;
}

function cellWidth(cell = ''): number {
  return widthOf(cell.replace(OWN_STYLE, ''));
}

/** Makes a cell as wide as this, its styles kept. */
function fill(cell: string, width: number): string {
  const text = cell.replace(OWN_STYLE, '');
  const shown = cut(text, width);
  const [, begin = '', end = ''] = STYLED.exec(cell) ?? [];
  return begin + shown + end + ' '.repeat(Math.max(width - widthOf(shown), 0));
}

/** Names and values, one pair per line, the values aligned. Pairs without a value are left out. */
export function pairs(entries: [string, string | undefined][]): string[] {
  const present = entries.filter((entry): entry is [string, string] => entry[1] !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  return present.map(([name, value]) => `${name.padEnd(width)}  ${value}`);
}
