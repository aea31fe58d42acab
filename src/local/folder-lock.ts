import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rename, rm, rmdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Answer, answerStatus, askStatus, type LocalStatus } from './local-status.ts';

/** What the lock's entries in a folder begin with. */
export const LOCK_NAME = 'lock';

export type LockResult =
  | { status: 'taken'; release(): Promise<void> }
  | { status: 'held'; holder: Exclude<Answer, 'nobody'> };

/**
 * Makes this process the only one that works with a folder, until it releases the lock or ends, however it ends.
 *
 * The lock is the directory `lock` with one listening socket in it. It is prepared under another name and renamed, which
 * succeeds only where there is no `lock`, or an empty one. A socket that refuses connections is a dead process's. Each has
 * a name of its own, so that removing a dead one never removes that of somebody who took the lock meanwhile.
 *
 * @param via another path of the folder, short enough for sockets in it
 */
export async function takeLock(folder: string, via: string, status: () => LocalStatus): Promise<LockResult> {
  const lock = join(folder, LOCK_NAME);
  for (;;) {
    const holder = await holderOf(lock, join(via, LOCK_NAME));
    if (holder !== 'nobody') return { status: 'held', holder };

    const prepared = await mkdtemp(`${lock}-`);
    const name = randomBytes(4).toString('hex');
    const close = await answerStatus(join(via, basename(prepared), name), status);
    try {
      await rename(prepared, lock);
    } catch (error) {
      await close();
      await rm(prepared, { recursive: true, force: true });
      // Somebody else was faster, and is the holder now.
      if (['ENOTEMPTY', 'EEXIST'].includes(String((error as NodeJS.ErrnoException).code))) continue;
      throw error;
    }
    const release = async () => {
      await close();
      await rm(join(lock, name), { force: true });
      await rmdir(lock).catch(() => undefined);
    };
    return { status: 'taken', release };
  }
}

/** Asks who holds the lock, and removes what dead holders left. */
async function holderOf(lock: string, via: string): Promise<Answer> {
  const names = await readdir(lock).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  for (const name of names) {
    const answer = await askStatus(join(via, name));
    if (answer !== 'nobody') return answer;
    await rm(join(lock, name), { force: true });
  }
  return 'nobody';
}
