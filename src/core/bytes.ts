const UNITS = ['KiB', 'MiB', 'GiB', 'TiB'] as const;

/** A number of bytes for people: `512 bytes`, `1.9 KiB`, `12.3 MiB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), UNITS.length);
  return `${(bytes / 1024 ** power).toFixed(1)} ${UNITS[power - 1]}`;
}
