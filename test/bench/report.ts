import { type Figure, median, OTHER_CORES, type Row, type Table } from './part.ts';

/** From this many cores on, what else the machine does makes figures doubtful. */
const DISTURBING_CORES = 0.2;

/** Values that differ by less than this share of their median need no word about it. */
const STEADY = 0.1;

/**
 * A table for a terminal: the median of each figure and, after it, its share of the reference's. What was measured in
 * the same rounds is compared round by round, so that a machine that slows down does so for both.
 */
export function tableText({ title, rows, reference, remarks = [] }: Table): string {
  const units = [...new Set(rows.flatMap(({ figures }) => figures.map(({ unit }) => unit)))];
  const base = rows.find(({ name }) => name === reference);
  const isCompared = (unit: string) => base !== undefined && !rows.some((row) => find(row, unit)?.isContext);
  const cells = rows.map((row) => [
    row.name,
    ...units.flatMap((unit) => {
      const figure = find(row, unit);
      const text = number(median(figure?.values ?? []));
      return isCompared(unit) ? [text, base === row ? '' : number(share(figure, find(base, unit)))] : [text];
    }),
  ]);
  const head = ['', ...units.flatMap((unit) => (isCompared(unit) ? [unit, '×'] : [unit]))];
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
  const notes = [
    ...(base ? [`×: of ${base.name}`] : []),
    ...spread(rows, units),
    ...disturbance(rows),
    ...remarks,
  ];
  return [
    title,
    ...[head, ...cells].map((row) => `  ${line(row)}`),
    ...notes.map((text) => `  ${text}`),
  ].join('\n');
}

function find(row: Row | undefined, unit: string): Figure | undefined {
  return row?.figures.find((figure) => figure.unit === unit);
}

function share(figure: Figure | undefined, base: Figure | undefined): number {
  const [values, baseValues] = [figure?.values ?? [], base?.values ?? []];
  if (values.length !== baseValues.length) return median(values) / median(baseValues);
  return median(values.map((value, round) => value / (baseValues[round] ?? Number.NaN)));
}

/** By how much the first figure varied from round to round, where that is much. */
function spread(rows: readonly Row[], [unit = '']: readonly string[]): string[] {
  const unsteady = rows.flatMap((row) => {
    const values = find(row, unit)?.values ?? [];
    const extent = (Math.max(...values) - Math.min(...values)) / median(values);
    return extent > STEADY
      ? [`${row.name} ${number(Math.min(...values))} to ${number(Math.max(...values))}`]
      : [];
  });
  return unsteady.length > 0 ? [`${unit} from round to round: ${unsteady.join(', ')}`] : [];
}

function disturbance(rows: readonly Row[]): string[] {
  const most = Math.max(...rows.flatMap((row) => find(row, OTHER_CORES)?.values ?? []));
  if (!(most > DISTURBING_CORES)) return [];
  return [`other processes used up to ${number(most)} cores meanwhile: measure again on a quiet machine`];
}

/** Three digits that say something; nothing for what was not measured. */
function number(value: number): string {
  if (Number.isNaN(value)) return '';
  if (value >= 1000) return Math.round(value).toLocaleString('en-US');
  return value >= 100 || value === 0 ? value.toFixed(0) : value.toPrecision(3);
}
