import { readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Folder, in the directory where `orc local` is started, that holds all its data. */
export const DATA_FOLDER = '.orc';
const STATE_FILE = 'local.json';

/** What a running `orc local` leaves for other commands to find it by. */
export interface LocalState {
  pid: number;
  redisUrl: string;
  apiUrl: string;
}

export async function writeLocalState(dataDir: string, state: LocalState): Promise<void> {
  await writeFile(join(dataDir, STATE_FILE), `${JSON.stringify(state)}\n`, { mode: 0o600 });
}

export async function removeLocalState(dataDir: string): Promise<void> {
  await rm(join(dataDir, STATE_FILE), { force: true });
}

/** The running `orc local` of a data folder, if there is one. */
export async function readLocalState(dataDir: string): Promise<LocalState | undefined> {
  try {
    const state = JSON.parse(await readFile(join(dataDir, STATE_FILE), 'utf8')) as LocalState;
    return isAlive(state.pid) ? state : undefined;
  } catch {
    return undefined;
  }
}

/** The running `orc local` of a directory, or of the nearest directory above it that has one. */
export async function findLocalState(directory: string): Promise<LocalState | undefined> {
  const state = await readLocalState(join(directory, DATA_FOLDER));
  const parent = dirname(directory);
  return state ?? (parent === directory ? undefined : findLocalState(parent));
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    // EPERM: it lives, and belongs to somebody else.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
