import { randomBytes } from 'node:crypto';
import {
  chmod,
  lstat,
  mkdir,
  readdir,
  readlink,
  realpath,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { LOCK_NAME, takeLock } from '../core/folder-lock.ts';
import { type Answer, answerStatus, type HolderStatus } from '../core/lock-status.ts';
import {
  checkOwner,
  checkOwnFolder,
  DATA_FOLDER,
  DataFolderError,
  isSocketPath,
  LINK_NAME,
  NAME_FILE,
  readEntry,
  readName,
  STATUS_SOCKET,
} from './data-folder.ts';

/** A path as long as the longest socket path in an entry of the state folder. */
const LONGEST_SOCKET = join(LINK_NAME, `${LOCK_NAME}-XXXXXX`, '12345678');

export interface ClaimOptions {
  /** Directory of the data folder. */
  directory: string;
  stateDir: string;
  /** Also accept a data folder that the state folder does not know. */
  trust: boolean;
  /** The answer to status requests. */
  status(): HolderStatus;
}

/** A data folder that only this process uses. */
export interface ClaimedFolder {
  dataDir: string;
  /** Its entry in the state folder. */
  socketDir: string;
  /** Makes it discoverable for other commands. */
  announce(): Promise<void>;
  /** Whether the path still leads to the same folder. */
  isInPlace(): Promise<boolean>;
  /** Idempotent. */
  release(): Promise<void>;
}

/**
 * Claims the data folder of a directory for this process, creates it if missing, and makes it private to this user.
 *
 * @throws DataFolderError when it cannot be trusted, or another process uses it
 */
export async function claimDataFolder(options: ClaimOptions): Promise<ClaimedFolder> {
  const { directory, stateDir, trust, status } = options;
  const dataDir = join(await realpath(directory), DATA_FOLDER);
  await makeFolder(dataDir, 'Start orc local in a folder that you may write to');
  await makeFolder(stateDir, 'Set XDG_STATE_HOME to a folder that you may write to');
  const { dev, ino } = await checkOwnFolder(dataDir);
  const entry = await entryFor(dataDir, stateDir, trust);
  const socketDir = join(stateDir, entry.name);
  if (!isSocketPath(join(socketDir, LONGEST_SOCKET))) {
    throw new DataFolderError(
      `${socketDir} is too long for the path of a socket, or contains a question mark. Set XDG_STATE_HOME to a shorter path.`,
    );
  }
  await pointTo(dataDir, socketDir);

  const lock = await takeLock(dataDir, join(socketDir, LINK_NAME), status);
  if (lock.status === 'held') {
    if (entry.isNew) await rm(socketDir, { recursive: true });
    throw new DataFolderError(describeHolder(lock.holder));
  }
  let closeStatus: () => Promise<void> = async () => undefined;
  const release = async () => {
    await closeStatus();
    await lock.release();
  };
  try {
    if (entry.isNew) await writeName(dataDir, entry.name);
    await makePrivate(dataDir);
  } catch (error) {
    await release();
    throw error;
  }
  return {
    dataDir,
    socketDir,
    announce: async () => {
      const socket = join(socketDir, STATUS_SOCKET);
      // This process has the lock, so an existing socket is of a killed process.
      await rm(socket, { force: true });
      closeStatus = await answerStatus(socket, status);
    },
    isInPlace: async () => {
      const now = await lstat(dataDir);
      return now.dev === dev && now.ino === ino;
    },
    release,
  };
}

/** Creates a folder like `mkdir -p`, and checks that it is this user's own. */
async function makeFolder(path: string, cure: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    // EEXIST: `checkOwnFolder` explains what is in the way.
    if (code !== 'EEXIST') {
      throw new DataFolderError(`${path} cannot be created: ${message}. ${cure}.`, { cause: error });
    }
  }
  await checkOwnFolder(path);
}

/** The state folder's entry of a data folder, or a new one. */
async function entryFor(
  dataDir: string,
  stateDir: string,
  trust: boolean,
): Promise<{ name: string; isNew: boolean }> {
  // Read before the name: a process that starts at the same time writes the name first.
  const names = await readdir(dataDir);
  const isEmpty = names.every((name) => name.startsWith(LOCK_NAME) || name.startsWith(NAME_FILE));
  const entry = await readEntry(dataDir, stateDir);
  // A moved folder keeps its name; a copy does not get the original's.
  if (entry && (entry.target === dataDir || (await readName(entry.target)) !== entry.name)) {
    return { name: entry.name, isNew: false };
  }
  if (!isEmpty && !trust) {
    throw new DataFolderError(
      `${dataDir} is not known as yours: it may come from a repository, a copy or a backup, and its content can run commands. If you trust it: orc local --trust. Otherwise move it away.`,
    );
  }
  return { name: randomBytes(16).toString('base64url'), isNew: true };
}

/** Links the entry to the data folder. */
async function pointTo(dataDir: string, socketDir: string): Promise<void> {
  const link = join(socketDir, LINK_NAME);
  if ((await readlink(link).catch(() => undefined)) === dataDir) return;
  await mkdir(socketDir, { recursive: true, mode: 0o700 });
  const next = `${link}-${randomBytes(4).toString('hex')}`;
  await symlink(dataDir, next);
  await rename(next, link);
}

function describeHolder(holder: Exclude<Answer, 'nobody'>): string {
  if (holder === 'silent') {
    return 'orc local already runs here but does not answer. It may be suspended: resume it (fg) or end it.';
  }
  const { pid, apiUrl } = holder;
  return apiUrl === undefined
    ? `orc local is starting or stopping here (process ${pid}). Try again in a moment.`
    : `orc local already runs here, at ${apiUrl} (process ${pid}).`;
}

async function writeName(dataDir: string, name: string): Promise<void> {
  const path = join(dataDir, NAME_FILE);
  const next = `${path}.new`;
  await rm(next, { force: true });
  await writeFile(next, `${name}\n`, { mode: 0o600, flag: 'wx' });
  await rename(next, path);
}

/**
 * Revokes the rights of all other users, which an earlier version or Redis itself may have left.
 *
 * @throws DataFolderError when something in the folder belongs to another user
 */
async function makePrivate(folder: string): Promise<void> {
  await chmod(folder, 0o700);
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    try {
      const stats = await lstat(path);
      checkOwner(path, stats);
      if (stats.isDirectory()) await makePrivate(path);
      else if (stats.isFile()) await chmod(path, 0o600);
    } catch (error) {
      // A Redis left by a killed process may be replacing its files.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}
