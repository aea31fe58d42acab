import { lstat, mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { hasRealParents } from './real-folders.ts';

/** How often nested repositories are looked for: those in others are seen once those are out of the way. */
const MAX_DEPTH = 50;

/**
 * Moves the `.git` of each repository that lies in a work tree out of it while something is done. Git would take such a
 * folder for a submodule, hide the files in it, and read its configuration, which may name programs.
 *
 * @param find the folders of the repositories that git sees now, relative to the work tree
 * @param aside a folder on the same file system
 * @throws when they are nested too deeply
 */
export async function withoutNestedRepositories<T>(
  workTree: string,
  aside: string,
  find: () => Promise<readonly string[]>,
  work: () => Promise<T>,
): Promise<T> {
  const moved: { from: string; to: string }[] = [];
  try {
    for (let depth = 0; ; depth += 1) {
      const before = moved.length;
      for (const folder of await find()) {
        const path = join(folder, '.git');
        const from = join(workTree, path);
        if (!(await hasRealParents(workTree, path))) continue;
        if ((await lstat(from).catch(() => undefined)) === undefined) continue;
        const to = join(aside, String(moved.length));
        await mkdir(aside, { recursive: true });
        await rename(from, to);
        moved.push({ from, to });
      }
      if (moved.length === before) return await work();
      if (depth === MAX_DEPTH) throw new Error('git repositories are nested too deeply in the workspace');
    }
  } finally {
    for (const { from, to } of moved.reverse()) await rename(to, from);
  }
}
