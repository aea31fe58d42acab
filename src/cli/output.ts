import { styleText } from 'node:util';

/** The command cannot do what it was asked; its message is for the person who typed it. */
export class CommandError extends Error {
  override name = 'CommandError';
  readonly exitCode: number;

  constructor(message: string, options: ErrorOptions & { exitCode?: number } = {}) {
    super(message, options);
    this.exitCode = options.exitCode ?? 1;
  }
}

/** The command line itself is wrong. Exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

type Style = Parameters<typeof styleText>[0];

/** Where a command prints: results to `out`, remarks to `err`. */
export interface Output {
  out(text: string | Buffer): void;
  err(text: string | Buffer): void;
  /** One line of a result. */
  line(text?: string): void;
  /** A result for programs: one JSON value. */
  json(value: unknown): void;
  /** Styles text for a terminal; leaves it alone in a pipe, or when NO_COLOR is set. */
  style(style: Style, text: string): string;
}

/** @param noColor whether NO_COLOR is set (no-color.org) */
export function createOutput(
  stdout: NodeJS.WriteStream,
  stderr: NodeJS.WriteStream,
  noColor: boolean,
): Output {
  // A reader that has seen enough, such as `head`, closes the pipe: what it does not read is not missed.
  for (const stream of [stdout, stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  }
  const isColorful = stdout.isTTY && !noColor;
  return {
    out: (text) => void stdout.write(text),
    err: (text) => void stderr.write(text),
    line: (text = '') => void stdout.write(`${text}\n`),
    json: (value) => void stdout.write(`${JSON.stringify(value, null, 2)}\n`),
    style: (style, text) => (isColorful ? styleText(style, text) : text),
  };
}

/** Columns as wide as their widest cell; the last one is not padded. Styling happens after padding. */
export function table(header: string[], rows: string[][]): string[] {
  const widths = header.map((_, column) =>
    Math.max(...[header, ...rows].map((row) => row[column]?.length ?? 0)),
  );
  return [header, ...rows].map((row) =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}

/** Names and values, one pair a line, the values aligned. Pairs without a value are left out. */
export function pairs(entries: [string, string | undefined][]): string[] {
  const present = entries.filter((entry): entry is [string, string] => entry[1] !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  return present.map(([name, value]) => `${name.padEnd(width)}  ${value}`);
}
