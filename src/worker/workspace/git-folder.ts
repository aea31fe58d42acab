import { copyFile, link, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** How a repository names its objects. */
export type ObjectFormat = 'sha1' | 'sha256';

/** The files of packed objects; what else lies beside them belongs to commands that were killed. */
const PACK_FILE = /^pack-[0-9a-f]+\.(pack|idx|rev)$/;

/**
 * Makes a folder a git directory, or sets its configuration back to what it was made with: before git reaches other
 * machines, so that nothing else has a say then.
 */
export async function writeGitFolder(folder: string, format: ObjectFormat): Promise<void> {
  for (const name of ['objects/pack', 'objects/info', 'refs']) {
    await mkdir(join(folder, name), { recursive: true, mode: 0o700 });
  }
  await writeFile(join(folder, 'HEAD'), 'ref: refs/heads/none\n');
  await rm(join(folder, 'config'), { recursive: true, force: true });
  await writeFile(join(folder, 'config'), configOf(format, true));
}

/**
 * Gives a git directory all objects of another one, as hard links: it keeps them when the other one is packed anew or
 * removed. Packs never change.
 */
export async function linkPacks(from: string, to: string): Promise<void> {
  const source = join(from, 'objects', 'pack');
  const target = join(to, 'objects', 'pack');
  for (const name of await readdir(source)) {
    if (!PACK_FILE.test(name)) continue;
    const [existing, copy] = [join(source, name), join(target, name)];
    // Not every file system has hard links.
    await link(existing, copy).catch(() => copyFile(existing, copy));
  }
}

/** Removes what git commands that were killed have left beside the packs. Nobody else may use the folder. */
export async function removeLeftovers(folder: string): Promise<void> {
  const packs = join(folder, 'objects', 'pack');
  for (const name of await readdir(packs)) {
    if (!PACK_FILE.test(name)) await rm(join(packs, name), { recursive: true, force: true });
  }
}

/**
 * Makes the `.git` of a workspace: for whoever works there, who can commit and look at the history. It reads the objects
 * of another git directory, has no remote, and nothing is ever read from it.
 *
 * @param head the commit that is checked out, and its branch if it has one
 */
export async function writeWorkspaceGit(
  workTree: string,
  objectsOf: string,
  format: ObjectFormat,
  head: { commit: string; branch?: string | undefined },
): Promise<void> {
  const folder = join(workTree, '.git');
  for (const name of ['objects/pack', 'objects/info', 'refs/heads', 'refs/tags', 'info']) {
    await mkdir(join(folder, name), { recursive: true });
  }
  const { commit, branch } = head;
  await Promise.all([
    writeFile(join(folder, 'HEAD'), `${branch === undefined ? commit : `ref: refs/heads/${branch}`}\n`),
    writeFile(
      join(folder, 'packed-refs'),
      `# pack-refs with: peeled fully-peeled sorted \n${branch === undefined ? '' : `${commit} refs/heads/${branch}\n`}`,
    ),
    writeFile(join(folder, 'config'), configOf(format, false)),
    writeFile(join(folder, 'objects', 'info', 'alternates'), `${join(objectsOf, 'objects')}\n`),
  ]);
}

function configOf(format: ObjectFormat, isBare: boolean): string {
  const isDefault = format === 'sha1';
  return [
    '[core]',
    `\trepositoryformatversion = ${isDefault ? 0 : 1}`,
    `\tbare = ${isBare}`,
    // Who commits in a workspace need not say who they are.
    ...(isBare ? [] : ['\tlogallrefupdates = true', '[user]', '\tname = orc', '\temail = orc@localhost']),
    ...(isDefault ? [] : ['[extensions]', `\tobjectformat = ${format}`]),
    '',
  ].join('\n');
}
