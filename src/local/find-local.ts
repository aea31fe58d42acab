import { dirname, join } from 'node:path';
import { askStatus, type HolderStatus } from '../core/lock-status.ts';
import {
  checkOwnFolder,
  DATA_FOLDER,
  DataFolderError,
  REDIS_SOCKET,
  readEntry,
  STATUS_SOCKET,
} from './data-folder.ts';

/** A running `orc local`. Its status is missing while it is suspended. */
export interface RunningLocal extends Partial<HolderStatus> {
  redisUrl: string;
}

export interface LocalSearch {
  running: RunningLocal | undefined;
  /** Why folders that look like an `orc local`'s were ignored, one sentence each. */
  refused: string[];
}

/** Finds the `orc local` that runs in a directory, or in the nearest directory above it. */
export async function findLocal(directory: string, stateDir: string): Promise<LocalSearch> {
  const refused: string[] = [];
  for (let at = directory; ; at = dirname(at)) {
    try {
      const running = await runningIn(join(at, DATA_FOLDER), stateDir);
      if (running) return { running, refused };
    } catch (error) {
      if (!(error instanceof DataFolderError)) throw error;
      refused.push(error.message);
    }
    if (dirname(at) === at) return { running: undefined, refused };
  }
}

/** @throws DataFolderError when the data folder cannot be trusted */
async function runningIn(dataDir: string, stateDir: string): Promise<RunningLocal | undefined> {
  if (!(await isOwnFolder(dataDir)) || !(await isOwnFolder(stateDir))) return undefined;
  const entry = await readEntry(dataDir, stateDir);
  if (entry?.target !== dataDir) return undefined;
  const socketDir = join(stateDir, entry.name);
  const answer = await askStatus(join(socketDir, STATUS_SOCKET));
  if (answer === 'nobody') return undefined;
  const redisUrl = join(socketDir, REDIS_SOCKET);
  return answer === 'silent' ? { redisUrl } : { ...answer, redisUrl };
}

/** @returns false when there is none, or it cannot be inspected */
async function isOwnFolder(path: string): Promise<boolean> {
  try {
    await checkOwnFolder(path);
    return true;
  } catch (error) {
    if (error instanceof DataFolderError) throw error;
    return false;
  }
}
