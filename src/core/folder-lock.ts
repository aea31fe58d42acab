import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rename, rm, rmdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Answer, answerStatus, askStatus, type HolderStatus } from './lock-status.ts';

/** Prefix of the lock's entries in a folder. */
export const LOCK_NAME = 'lock';

export type LockResult =
  | { status: 'taken'; release(): Promise<void> }
  | { status: 'held'; holder: Exclude<Answer, 'nobody'> };

/**
 * Gives this process exclusive use of a folder until it releases the lock or ends.
 *
 * The lock is the directory `lock` with one listening socket. It is prepared under another name and renamed, which succeeds
 * only if there is no `lock`, or an empty one. A socket that refuses connections belongs to a dead process. Sockets have
 * unique names, so removing a dead one never removes that of a process that has just taken the lock.
 *
 * @param via another path of the folder, short enough for sockets
 */
export async function takeLock(folder: string, via: string, status: () => HolderStatus): Promise<LockResult> {
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
      // Another process was faster and holds the lock now.
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

/** Asks who holds the lock, and removes the sockets of dead holders. */
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
