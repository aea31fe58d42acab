import { randomBytes } from 'node:crypto';
import { type FileHandle, lstat, mkdir, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CommandError } from './output.ts';

/** Secrets issued for an automation, which are shown only once. */
export interface IssuedSecrets {
  slug: string;
  apiKey?: string;
  signingSecret?: string;
}

/** The secrets that will be issued for an automation. */
export interface ExpectedSecrets {
  slug: string;
  hasApiKey: boolean;
  hasSigningSecret: boolean;
}

export interface KeyFiles {
  /** Writes the key to the file named after the slug, and the signing secret to one beside it, each atomically. */
  write(secrets: IssuedSecrets): Promise<void>;
  /** Removes the reserved files of secrets that were not issued. */
  close(): Promise<void>;
}

/** Disk space reserved for each file, in bytes. */
const RESERVED_BYTES = 128;

/** A temporary file that is renamed once its content is written. */
interface ReservedFile {
  handle: FileHandle;
  temporaryPath: string;
}

/**
 * Reserves a file for each expected secret, which only its owner may read or write.
 *
 * @throws CommandError when a file cannot be created, or a file with a key exists already; then no reserved file is left
 */
export async function openKeyFiles(
  directory: string,
  expected: readonly ExpectedSecrets[],
): Promise<KeyFiles> {
  const reserved = new Map<string, ReservedFile>();
  const keyPath = (slug: string) => join(directory, slug);
  const secretPath = (slug: string) => `${keyPath(slug)}.signing-secret`;
  const close = async () => {
    for (const { handle, temporaryPath } of reserved.values()) {
      await handle.close();
      await rm(temporaryPath, { force: true });
    }
    reserved.clear();
  };
  const reserve = async (path: string) => {
    const temporaryPath = join(directory, `.new-${randomBytes(8).toString('hex')}`);
    const handle = await open(temporaryPath, 'wx', 0o600);
    reserved.set(path, { handle, temporaryPath });
    await handle.write(' '.repeat(RESERVED_BYTES), 0);
    await handle.sync();
  };
  const write = async (path: string, text: string) => {
    const file = reserved.get(path);
    if (!file) throw new Error(`${path} was not reserved`);
    const { bytesWritten } = await file.handle.write(`${text}\n`, 0);
    await file.handle.truncate(bytesWritten);
    await file.handle.sync();
    await rename(file.temporaryPath, path);
    reserved.delete(path);
    await file.handle.close();
  };
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    for (const { slug, hasApiKey, hasSigningSecret } of expected) {
      if (hasApiKey) {
        await checkFree(keyPath(slug), () => false);
        await reserve(keyPath(slug));
      }
      if (hasSigningSecret) {
        // An existing file is of an automation that had this slug, or delivered to a URL, before.
        await checkFree(secretPath(slug), (isFile) => isFile);
        await reserve(secretPath(slug));
      }
    }
  } catch (error) {
    await close();
    if (error instanceof CommandError) throw error;
    throw new CommandError(`The keys cannot be written: ${(error as Error).message}; nothing was changed.`, {
      cause: error,
    });
  }
  return {
    write: async ({ slug, apiKey, signingSecret }) => {
      if (apiKey !== undefined) await write(keyPath(slug), apiKey);
      if (signingSecret !== undefined) await write(secretPath(slug), signingSecret);
    },
    close,
  };
}

/** @throws CommandError when the path exists and may not be replaced */
async function checkFree(path: string, mayReplace: (isFile: boolean) => boolean): Promise<void> {
  const stats = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (!stats || mayReplace(stats.isFile())) return;
  throw new CommandError(`${path} already exists. Move it away first; nothing was changed.`);
}
