import { once } from 'node:events';
import { lstat, mkdir, mkdtemp, readdir } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removeFolder } from './remove-folder.ts';

/** The names of workers' folders begin with this. Each holds one folder for each attempt that goes on. */
const WORKER_PREFIX = 'orc-worker-';
const ATTEMPT_PREFIX = 'run-';

/** A socket in a worker's folder, which accepts connections while the worker lives. */
const LIFE_SIGN = 'alive';

/** Where this worker's attempts have their payloads and working directories; nobody but its user can look into them. */
export interface WorkFolders {
  /** Makes a folder for one attempt. */
  create(): Promise<string>;
  /** Removes what is left. Idempotent. */
  close(): Promise<void>;
}

/**
 * Nothing is made before the first attempt needs it.
 *
 * @param removeAtEnd is told of a folder that is to be removed when this process has died
 * @param parent where the worker's folder is made; by default the temporary folder
 */
export function openWorkFolders(removeAtEnd: (folder: string) => void, parent = tmpdir()): WorkFolders {
  let opened: Promise<{ folder: string; server: Server }> | undefined;
  const open = async () => {
    await mkdir(parent, { recursive: true, mode: 0o700 });
    const folder = await mkdtemp(join(parent, WORKER_PREFIX));
    removeAtEnd(folder);
    const server = createServer((socket) => socket.destroy()).unref();
    // Where the path is too long for a socket, nobody else removes the folder. A worker without file descriptors goes on.
    server.on('error', () => undefined).listen(join(folder, LIFE_SIGN));
    await once(server, 'listening').catch(() => undefined);
    return { folder, server };
  };
  /** @returns undefined when the worker's folder is gone */
  const create = async () => {
    opened ??= open();
    const current = opened;
    const { folder, server } = await current.catch((error) => {
      opened = undefined;
      throw error;
    });
    return mkdtemp(join(folder, ATTEMPT_PREFIX)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
      if (opened === current) opened = undefined;
      server.close();
      return undefined;
    });
  };
  return {
    // The machine may tidy up its temporary folder, and with it a worker's folder that was not used for days.
    create: async () =>
      (await create()) ?? (await create()) ?? Promise.reject(new Error('it is removed again and again')),
    close: async () => {
      const { folder, server } = (await opened?.catch(() => undefined)) ?? {};
      server?.close();
      if (folder !== undefined) await removeFolder(folder).catch(() => undefined);
    },
  };
}

/**
 * Removes what dead workers of this user have left where their folders are.
 *
 * @param report is told what could not be removed
 * @param parent as of {@link openWorkFolders}; it may not exist yet
 */
export async function sweepWorkFolders(report: (error: Error) => void, parent = tmpdir()): Promise<void> {
  const entries = await readdir(parent, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  for (const entry of entries) {
    const folder = join(parent, entry.name);
    if (entry.isDirectory() && (await isLeftOver(entry.name, folder))) {
      await removeFolder(folder).catch(report);
    }
  }
}

async function isLeftOver(name: string, folder: string): Promise<boolean> {
  if (!name.startsWith(WORKER_PREFIX)) return false;
  const found = await lstat(folder).catch(() => undefined);
  if (!found?.isDirectory() || found.uid !== process.getuid?.()) return false;
  return isRefused(join(folder, LIFE_SIGN));
}

/** A socket that is not there may be about to be made; its folder is empty then. */
async function isRefused(socketPath: string): Promise<boolean> {
  const socket = connect(socketPath);
  try {
    await once(socket, 'connect');
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
  } finally {
    socket.destroy();
  }
}
