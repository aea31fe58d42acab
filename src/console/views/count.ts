const FORMAT = new Intl.NumberFormat('en');

/** A number for people: `1,284`. */
export function formatCount(count: number): string {
  return FORMAT.format(count);
}

/** `1 run`, `1,284 runs` */
export function countOf(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`;
}
