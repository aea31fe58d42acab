import type { Stats } from 'node:fs';
import { lstat, readFile, readlink } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

/**
 * `orc local` keeps its data in `.orc`, in the directory where it was started. Anybody can put a folder of that name above
 * another user's working directory, or into a repository that others clone. So orc reads only a random name from `.orc`, and
 * uses the folder only if this user's state folder has an entry of that name that links back to this `.orc`. The sockets
 * are in that entry.
 */
export const DATA_FOLDER = '.orc';

/** The file with the data folder's random name. */
export const NAME_FILE = 'id';
const NAME_FORM = /^[A-Za-z0-9_-]{22}$/;
const MAX_NAME_FILE_BYTES = 64;

/** In an entry of the state folder: the link to the data folder. */
export const LINK_NAME = 'data';
export const REDIS_SOCKET = 'redis.sock';
export const STATUS_SOCKET = 'local.sock';

/** Maximum length of a socket's path without its final NUL; macOS has the smallest. */
const MAX_SOCKET_PATH_BYTES = 103;

/** Whether a socket can have this path; in a REDIS_URL, options follow a question mark. */
export function isSocketPath(path: string): boolean {
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES && !path.includes('?');
}

/** A data folder cannot be used; the message says why and what to do. */
export class DataFolderError extends Error {
  override readonly name = 'DataFolderError';
}

/** The state folder, which records this user's data folders (XDG Base Directory Specification). */
export function stateDirOf({ XDG_STATE_HOME, HOME }: NodeJS.ProcessEnv): string {
  const isSet = XDG_STATE_HOME !== undefined && isAbsolute(XDG_STATE_HOME);
  return join(isSet ? XDG_STATE_HOME : join(HOME || homedir(), '.local', 'state'), 'orc');
}

/** @throws DataFolderError unless it is this user's folder and nobody else can write to it */
export async function checkOwnFolder(path: string): Promise<Stats> {
  const stats = await lstat(path);
  if (!stats.isDirectory()) {
    throw new DataFolderError(`${path} is not a folder. Move it away, or use another folder.`);
  }
  checkOwner(path, stats);
  if ((stats.mode & 0o022) !== 0) {
    throw new DataFolderError(
      `Other users can write to ${path}, so its content cannot be trusted. If you know that nobody wrote to it: chmod 700 ${path}`,
    );
  }
  return stats;
}

/** @throws DataFolderError when it belongs to another user */
export function checkOwner(path: string, { uid }: Stats): void {
  if (process.getuid === undefined || uid === process.getuid()) return;
  throw new DataFolderError(
    `${path} belongs to another user (user id ${uid}). Use a folder of your own, or run orc as that user.`,
  );
}

/** The state folder's entry of a data folder: its name and its target, which is another folder if this one is a copy. */
export interface StateEntry {
  name: string;
  target: string;
}

/** Reads the state folder's entry of this user's data folder. */
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
