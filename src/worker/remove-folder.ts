import { randomUUID } from 'node:crypto';
import { chmod, lstat, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';

const OWNER_MAY_ALL = 0o700;

/** A folder is moved up when its path within the removed one is longer, in bytes: systems take paths of at least 1,024. */
const MAX_DEPTH_BYTES = 512;

/** Something that is being killed may still write into a folder that is being removed. */
const RETRIES = 3;

/**
 * Removes a folder with everything in it; nothing happens when there is none. Folders in it that forbid their owner to
 * change them are made changeable first, and what lies too deep for a path is moved up. Symbolic links are removed, never
 * followed.
 */
export async function removeFolder(folder: string): Promise<void> {
  const remove = () => rm(folder, { recursive: true, force: true, maxRetries: RETRIES });
  await remove().catch(async () => {
    await allowRemoval(folder);
    await remove();
  });
}

/** @param root where folders are moved to */
async function allowRemoval(folder: string, root = folder): Promise<void> {
  const { mode } = await lstat(folder);
  if ((mode & OWNER_MAY_ALL) !== OWNER_MAY_ALL) await chmod(folder, OWNER_MAY_ALL);
  if (Buffer.byteLength(folder) - Buffer.byteLength(root) > MAX_DEPTH_BYTES) {
    const moved = join(root, randomUUID());
    await rename(folder, moved);
    return allowRemoval(moved, root);
  }
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) await allowRemoval(join(folder, entry.name), root);
  }
}
