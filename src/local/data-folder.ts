import type { Stats } from 'node:fs';
import { lstat, readFile, readlink } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

/**
 * `orc local` keeps its data in `.orc`, in the directory where it was started. Anybody can put a folder of that name above
 * somebody else's working directory, or into a repository that others clone. So nothing is read from `.orc` but a random
 * name, and it counts only where this user's state folder has an entry of that name that leads back to this `.orc`. The
 * sockets are in that entry.
 */
export const DATA_FOLDER = '.orc';

/** The file in the data folder that holds its random name. */
export const NAME_FILE = 'id';
const NAME_FORM = /^[A-Za-z0-9_-]{22}$/;
const MAX_NAME_FILE_BYTES = 64;

/** In an entry of the state folder: the link that leads to the data folder. */
export const LINK_NAME = 'data';
export const REDIS_SOCKET = 'redis.sock';
export const STATUS_SOCKET = 'local.sock';

/** A data folder cannot be used; the message says why and what to do. */
export class DataFolderError extends Error {
  override readonly name = 'DataFolderError';
}

/** Where orc keeps what it knows of this user's data folders, as the XDG Base Directory Specification has it. */
export function stateDirOf({ XDG_STATE_HOME, HOME }: NodeJS.ProcessEnv): string {
  const isSet = XDG_STATE_HOME !== undefined && isAbsolute(XDG_STATE_HOME);
  return join(isSet ? XDG_STATE_HOME : join(HOME || homedir(), '.local', 'state'), 'orc');
}

/** @throws DataFolderError unless it is a folder of this user that nobody else can write to */
export async function checkOwnFolder(path: string): Promise<Stats> {
  const stats = await lstat(path);
  if (!stats.isDirectory()) {
    throw new DataFolderError(`${path} is not a folder. Move it away, or work in another folder.`);
  }
  checkOwner(path, stats);
  if ((stats.mode & 0o022) !== 0) {
    throw new DataFolderError(
      `Other users can write to ${path}, so that nothing in it can be trusted. If you know that nobody did: chmod 700 ${path}`,
    );
  }
  return stats;
}

/** @throws DataFolderError when it belongs to another user */
export function checkOwner(path: string, { uid }: Stats): void {
  if (process.getuid === undefined || uid === process.getuid()) return;
  throw new DataFolderError(
    `${path} belongs to another user (user id ${uid}). Work in a folder of your own, or as that user.`,
  );
}

/** The entry of a data folder: its name, and the data folder that it leads to, which is another one if this is a copy. */
export interface StateEntry {
  name: string;
  target: string;
}

/** What the state folder knows of a data folder that is this user's own. */
export async function readEntry(dataDir: string, stateDir: string): Promise<StateEntry | undefined> {
  const name = await readName(dataDir);
  if (name === undefined) return undefined;
  const target = await readlink(join(stateDir, name, LINK_NAME)).catch(() => undefined);
  return target === undefined ? undefined : { name, target };
}

/** The random name of a data folder, if it has one. */
export async function readName(dataDir: string): Promise<string | undefined> {
  const path = join(dataDir, NAME_FILE);
  try {
    const stats = await lstat(path);
    if (!stats.isFile() || stats.size > MAX_NAME_FILE_BYTES) return undefined;
    const name = (await readFile(path, 'utf8')).trim();
    return NAME_FORM.test(name) ? name : undefined;
  } catch {
    return undefined;
  }
}
