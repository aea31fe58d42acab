import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The project's folder, with a `/` at its end. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** A file of `src` as JavaScript, for a process of its own. `npm test` compiles it first. */
export function compiled(path: string): string {
  return new URL(`../../.test/src/${path}`, import.meta.url).href;
}

/** Reads a file of the project. */
export function readProjectFile(path: string): string {
  return readFileSync(`${ROOT}${path}`, 'utf8');
}
