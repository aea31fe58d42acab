import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The project's folder, with a `/` at its end. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Reads a file of the project. */
export function readProjectFile(path: string): string {
  return readFileSync(`${ROOT}${path}`, 'utf8');
}
