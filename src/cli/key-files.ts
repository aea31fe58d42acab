import { randomBytes } from 'node:crypto';
import { type FileHandle, lstat, mkdir, open, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { MintedSecrets } from '../store/automations.ts';
import { CommandError } from './output.ts';

/** Secrets issued for an automation, which are shown only once. */
export interface IssuedSecrets extends Partial<MintedSecrets> {
  slug: string;
}

/** The secrets that will be issued for an automation. */
export interface ExpectedSecrets {
  slug: string;
  hasApiKey: boolean;
  hasSigningSecret: boolean;
}

export interface KeyFiles {
  /**
   * Writes to the disk what was reserved for an automation, before it gets these secrets: who is killed in between leaves them in
   * `.<slug>.new-…`.
   */
  prepare(slug: string, secrets: MintedSecrets): Promise<void>;
  /** Gives the file with the key the name of the slug, and the one with the signing secret a name beside it. */
  issue(slug: string): Promise<void>;
  /** Leaves what was prepared under its temporary name. @returns where */
  leave(slug: string): Promise<string[]>;
  /** Removes the reserved files of secrets that were not issued. */
  close(): Promise<void>;
}

/** Disk space reserved for each file, in bytes. */
const RESERVED_BYTES = 128;

/**
 * Reserves a file for each expected secret, which only its owner may read or write.
 *
 * @throws CommandError when a file cannot be created, or a file with a key exists already; then no reserved file is left
 */
export async function openKeyFiles(
  directory: string,
  expected: readonly ExpectedSecrets[],
): Promise<KeyFiles> {
  /** Temporary files by the path that they get once their content is written. */
  const reserved = new Map<string, { handle: FileHandle; temporaryPath: string }>();
  const keyPath = (slug: string) => join(directory, slug);
  const secretPath = (slug: string) => `${keyPath(slug)}.signing-secret`;
  const close = async () => {
    for (const { handle, temporaryPath } of reserved.values()) {
      await handle.close();
      await rm(temporaryPath, { force: true });
    }
    reserved.clear();
  };
  const reserve = async (path: string, mayReplaceFile: boolean) => {
    const stats = await lstat(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    if (stats && !(mayReplaceFile && stats.isFile())) {
      throw new CommandError(`${path} already exists. Move it away first; nothing was changed.`);
    }
    const temporaryPath = join(directory, `.${basename(path)}.new-${randomBytes(8).toString('hex')}`);
    const handle = await open(temporaryPath, 'wx', 0o600);
    reserved.set(path, { handle, temporaryPath });
    await handle.write(' '.repeat(RESERVED_BYTES), 0);
    await handle.sync();
  };
  const write = async (path: string, text: string) => {
    const { handle } = reserved.get(path) ?? {};
    if (!handle) return;
    const { bytesWritten } = await handle.write(`${text}\n`, 0);
    await handle.truncate(bytesWritten);
    await handle.sync();
  };
  const filesOf = (slug: string) =>
    [keyPath(slug), secretPath(slug)].flatMap((path) => {
      const file = reserved.get(path);
      return file ? [{ path, ...file }] : [];
    });
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    for (const { slug, hasApiKey, hasSigningSecret } of expected) {
      if (hasApiKey) await reserve(keyPath(slug), false);
      // An existing file is of an automation that had this slug, or delivered to a URL, before.
      if (hasSigningSecret) await reserve(secretPath(slug), true);
    }
  } catch (error) {
    await close();
    if (error instanceof CommandError) throw error;
    throw new CommandError(`The keys cannot be written: ${(error as Error).message}; nothing was changed.`, {
      cause: error,
    });
  }
  return {
    prepare: async (slug, { apiKey, signingSecret }) => {
      await write(keyPath(slug), apiKey);
      await write(secretPath(slug), signingSecret);
    },
    issue: async (slug) => {
      for (const { path, temporaryPath, handle } of filesOf(slug)) {
        await rename(temporaryPath, path);
        reserved.delete(path);
        await handle.close();
      }
    },
    leave: async (slug) => {
      const files = filesOf(slug);
      for (const { path, handle } of files) {
        reserved.delete(path);
        await handle.close();
      }
      return files.map(({ temporaryPath }) => temporaryPath);
    },
    close,
  };
}
