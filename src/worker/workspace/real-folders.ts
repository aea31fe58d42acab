import { chmod, lstat, mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { removeFolder } from '../remove-folder.ts';

const OWNER_MAY_ALL = 0o700;

/** Whether all folders above a path, from a folder on, are folders and not links. */
export async function hasRealParents(folder: string, path: string): Promise<boolean> {
  for (const parent of parentsOf(path)) {
    const found = await lstat(join(folder, parent)).catch(() => undefined);
    if (!found?.isDirectory()) return false;
  }
  return true;
}

/** Makes all folders above a path, from a folder on, folders that their owner may change; what is in their place is removed. */
export async function makeRealParents(folder: string, path: string): Promise<void> {
  for (const parent of parentsOf(path)) {
    const place = join(folder, parent);
    const found = await lstat(place).catch(() => undefined);
    if (!found?.isDirectory()) {
      await removeFolder(place);
      await mkdir(place);
    } else if ((found.mode & OWNER_MAY_ALL) !== OWNER_MAY_ALL) {
      await chmod(place, found.mode | OWNER_MAY_ALL);
    }
  }
}

/** Removes the first link among the folders above a path, so that the path leads nowhere else. */
export async function removeLinkAbove(folder: string, path: string): Promise<void> {
  for (const parent of parentsOf(path)) {
    const place = join(folder, parent);
    const found = await lstat(place).catch(() => undefined);
    if (found?.isSymbolicLink()) await removeFolder(place);
    if (!found?.isDirectory()) return;
  }
}

/** The folders above a relative path, the outermost first. */
function parentsOf(path: string): string[] {
  const parent = dirname(path);
  return parent === '.' ? [] : [...parentsOf(parent), parent];
}
