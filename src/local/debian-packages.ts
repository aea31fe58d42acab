import { lstat, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, delimiter, join } from 'node:path';
import { firstSuccess, onPath, run } from './programs.ts';

/** Working directories older than this were left by a killed process. */
const ABANDONED_AFTER_MS = 3_600_000;

const WORKING_PREFIX = 'tmp-';

export interface UnpackOptions {
  /** Gives PATH, and is the environment of apt. */
  readonly env: NodeJS.ProcessEnv;
  /** Every installation gets its own directory in it. */
  readonly cacheDir: string;
  /** Sets of packages; the first available one is unpacked. */
  readonly alternatives: readonly (readonly string[])[];
  /** Called before the download, if there is apt. */
  readonly onStart: () => void;
  /** Whether the unpacked programs work. */
  readonly isUsable: (root: string) => Promise<boolean>;
}

/**
 * Downloads packages of the distribution and the dependencies that the system lacks, and unpacks them into a directory:
 * without root, a service or changes elsewhere. Safe to call from several processes at the same time.
 *
 * @returns the directory, or undefined if there is no apt
 * @throws an error of one line when the packages are unavailable or do not work
 */
export async function unpackDebianPackages(options: UnpackOptions): Promise<string | undefined> {
  const { env, cacheDir, onStart, isUsable } = options;
  const [[aptGet], [dpkgDeb]] = [await onPath(env, 'apt-get'), await onPath(env, 'dpkg-deb')];
  if (!aptGet || !dpkgDeb) return undefined;

  onStart();
  await mkdir(cacheDir, { recursive: true, mode: 0o700 });
  await removeAbandoned(cacheDir);
  const work = await mkdtemp(join(cacheDir, WORKING_PREFIX));
  try {
    const archives = await downloadPackages(aptGet, work, options);
    const root = join(work, 'root');
    for (const archive of archives) await run(dpkgDeb, ['--extract', archive, root], env);
    if (!(await isUsable(root))) throw new Error('apt-get: what the packages hold does not work');

    // Each installation has its own name, so that processes can install at the same time.
    const installed = join(cacheDir, basename(work).replace(WORKING_PREFIX, 'apt-'));
    await rename(root, installed);
    return installed;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Directories of earlier installations that only this user or root can have created. */
export async function installations(cacheDir: string): Promise<string[]> {
  const names = await readdir(cacheDir).catch(() => []);
  const paths = names.filter((name) => !name.startsWith(WORKING_PREFIX)).map((name) => join(cacheDir, name));
  const areSafe = await Promise.all(paths.map(isSafe));
  return paths.filter((_, index) => areSafe[index]);
}

async function isSafe(path: string): Promise<boolean> {
  const { uid, mode } = await lstat(path);
  return (uid === 0 || uid === process.getuid?.()) && (mode & 0o022) === 0;
}

/** The LD_LIBRARY_PATH for programs unpacked into a directory; empty if they bring no libraries. */
export async function libraryPathOf(root: string): Promise<string> {
  const libraries = await Promise.all(
    ['usr/lib', 'lib'].map(async (path) => {
      const names = await readdir(join(root, path)).catch(() => []);
      // Debian keeps its libraries in a directory per architecture, such as `x86_64-linux-gnu`.
      return names.filter((name) => name.includes('-linux-')).map((name) => join(root, path, name));
    }),
  );
  return libraries.flat().join(delimiter);
}

/** @returns the downloaded archives: the packages and those of their dependencies that the system lacks */
async function downloadPackages(
  aptGet: string,
  work: string,
  { env, alternatives }: UnpackOptions,
): Promise<string[]> {
  const archives = join(work, 'archives');
  const lists = join(work, 'lists');
  const config = join(work, 'apt.conf');
  for (const directory of [archives, lists]) await mkdir(join(directory, 'partial'), { recursive: true });
  // The system's hooks would change the system; command-line options cannot clear them.
  const hooks = ['Pre-Invoke', 'Post-Invoke', 'Post-Invoke-Success'];
  await writeFile(config, hooks.map((hook) => `#clear APT::Update::${hook};\n`).join(''));
  const settings = [
    'Debug::NoLocking=1',
    // Otherwise root downloads as the user _apt, who may not write here.
    'APT::Sandbox::User=root',
    'Acquire::Languages=none',
    'APT::Update::Error-Mode=any',
    'Acquire::Retries=0',
    'Acquire::http::Timeout=10',
    `Dir::Cache::archives=${archives}`,
    'Dir::Cache::pkgcache=',
    'Dir::Cache::srcpkgcache=',
  ];
  const options = ['-c', config, '-qq', '-y', ...settings.flatMap((setting) => ['-o', setting])];
  const apt = (...args: string[]) => run(aptGet, [...options, ...args], { ...env, LC_ALL: 'C' });

  const download = (...listOptions: string[]) =>
    firstSuccess(alternatives, async (packages) => {
      // --reinstall makes apt fetch the packages even if the system has one of them.
      const args = ['install', '--download-only', '--no-install-recommends', '--reinstall', ...packages];
      await apt(...listOptions, ...args);
      const names = (await readdir(archives)).filter((name) => name.endsWith('.deb'));
      return names.map((name) => join(archives, name));
    });

  try {
    return await download();
  } catch {
    // The system's lists are missing or out of date. A source may fail without consequence, so the error of the update
    // counts only if the download fails too.
    const privateLists = ['-o', `Dir::State::lists=${lists}`];
    const updating = apt(...privateLists, 'update');
    await updating.catch(() => undefined);
    return await download(...privateLists).catch(async (error: unknown) => {
      await updating;
      throw error;
    });
  }
}

async function removeAbandoned(cacheDir: string): Promise<void> {
  const names = await readdir(cacheDir);
  for (const name of names.filter((entry) => entry.startsWith(WORKING_PREFIX))) {
    const path = join(cacheDir, name);
    const ageMs = Date.now() - (await stat(path).then(({ mtimeMs }) => mtimeMs, Date.now));
    if (ageMs > ABANDONED_AFTER_MS) await rm(path, { recursive: true, force: true });
  }
}
