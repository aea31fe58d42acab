import { chmod, lstat, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

const OWNER_MAY_ALL = 0o700;

/** Something that is being killed may still write into a folder that is being removed. */
const RETRIES = 3;

/**
 * Removes a folder with everything in it; nothing happens when there is none. Folders in it that forbid their owner to
 * change them are made changeable first. Symbolic links are removed, never followed.
 */
export async function removeFolder(folder: string): Promise<void> {
  const remove = () => rm(folder, { recursive: true, force: true, maxRetries: RETRIES });
  await remove().catch(async () => {
    await allowRemoval(folder);
    await remove();
  });
}

async function allowRemoval(folder: string): Promise<void> {
  const { mode } = await lstat(folder);
  if ((mode & OWNER_MAY_ALL) !== OWNER_MAY_ALL) await chmod(folder, OWNER_MAY_ALL);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) await allowRemoval(join(folder, entry.name));
  }
}
