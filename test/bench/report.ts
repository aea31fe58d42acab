import { type Figure, median, type Table } from './part.ts';

/** A table for a terminal: the median of each figure, and its share of the reference's. */
export function tableText({ title, rows, reference, remarks = [] }: Table): string {
  const units = [...new Set(rows.flatMap(({ figures }) => figures.map(({ unit }) => unit)))];
  const base = rows.find(({ name }) => name === reference);
  const cells = rows.map(({ name, figures }) => [
    name,
    ...units.flatMap((unit) => {
      const value = medianOf(figures, unit);
      const share = value / medianOf(base?.figures ?? [], unit);
      return base ? [number(value), number(share)] : [number(value)];
    }),
  ]);
  const head = ['', ...units.flatMap((unit) => (base ? [unit, '×'] : [unit]))];
  const widths = head.map((text, column) =>
    Math.max(text.length, ...cells.map((row) => (row[column] ?? '').length)),
  );
  const line = (row: string[]) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd();
  return [
    title,
    ...[head, ...cells].map((row) => `  ${line(row)}`),
    ...remarks.map((text) => `  ${text}`),
  ].join('\n');
}

function medianOf(figures: readonly Figure[], unit: string): number {
  return median(figures.find((figure) => figure.unit === unit)?.values ?? []);
}

/** Three digits that say something; nothing for what was not measured. */
function number(value: number): string {
  if (Number.isNaN(value)) return '';
  if (value >= 1000) return Math.round(value).toLocaleString('en-US');
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
