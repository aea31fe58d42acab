import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CommandError } from './output.ts';

/** What was issued for an automation, and nobody can see again. */
export interface IssuedSecrets {
  slug: string;
  apiKey?: string;
  signingSecret?: string;
}

export interface KeyFiles {
  /** Writes a key to the file that is named after the slug, and a signing secret to one beside it. */
  write(secrets: IssuedSecrets): Promise<void>;
  /** Removes the files that nothing was written to. */
  close(): Promise<void>;
}

/**
 * Makes an empty file for each slug, which only its owner may read or write.
 *
 * @throws CommandError when one cannot be made or exists already, whose key would be lost; none is left then
 */
export async function openKeyFiles(directory: string, slugs: readonly string[]): Promise<KeyFiles> {
  const empty = new Map<string, FileHandle>();
  const close = async () => {
    for (const [path, handle] of empty) {
      await handle.close();
      await rm(path, { force: true });
    }
    empty.clear();
  };
  const pathOf = (slug: string) => join(directory, slug);
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    for (const slug of slugs) empty.set(pathOf(slug), await open(pathOf(slug), 'wx', 0o600));
  } catch (error) {
    await close();
    const { code, path, message } = error as NodeJS.ErrnoException;
    const reason =
      code === 'EEXIST' && path !== directory
        ? `${path} exists already. Move it away first`
        : `The keys cannot be written: ${message}`;
    throw new CommandError(`${reason}; nothing was changed.`, { cause: error });
  }
  return {
    write: async ({ slug, apiKey, signingSecret }) => {
      if (apiKey !== undefined) {
        const path = pathOf(slug);
        const handle = empty.get(path);
        await handle?.writeFile(`${apiKey}\n`);
        await handle?.close();
        empty.delete(path);
      }
      if (signingSecret !== undefined) {
        const path = `${pathOf(slug)}.signing-secret`;
        // One that is there is of an earlier automation, and may be readable for others.
        await rm(path, { force: true });
        const handle = await open(path, 'wx', 0o600);
        await handle.writeFile(`${signingSecret}\n`);
        await handle.close();
      }
    },
    close,
  };
}
