import { execFile } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { installations, libraryPathOf, unpackDebianPackages } from '../../src/local/debian-packages.ts';
import { executables, onPath } from '../../src/local/programs.ts';

export interface DebianProgram {
  command: string;
  env: NodeJS.ProcessEnv;
}

interface DebianProgramOptions {
  /** What it is called where it is installed already; absolute paths may be among them. */
  names: readonly string[];
  /** The packages it is in, and what else it needs. */
  packages: readonly string[];
  /** Where it is in them. */
  path: string;
  /** Its option that prints its version. Default: `--version` */
  version?: string;
}

/**
 * A program that a test is a client with: the system's own one, or one unpacked into the user's cache.
 *
 * @returns undefined, after a line for people, on a machine whose packages are not Debian's
 * @throws when the packages cannot be had although there is apt
 */
export async function findDebianProgram(options: DebianProgramOptions): Promise<DebianProgram | undefined> {
  const { names, packages } = options;
  const { PATH, HOME = homedir(), XDG_CACHE_HOME } = process.env;
  const env = { PATH, HOME };
  const installed = [...(await onPath(env, ...names)), ...(await executables(names))];
  if (installed[0]) return { command: installed[0], env };

  const cacheDir = join(XDG_CACHE_HOME || join(HOME, '.cache'), 'orc', 'test-programs', packages[0] ?? '');
  for (const root of await installations(cacheDir)) {
    const program = await programIn(root, options, env);
    if (program) return program;
  }
  const root = await unpackDebianPackages({
    env,
    cacheDir,
    alternatives: [packages],
    onStart: () => console.warn(`${packages[0]} is not installed; unpacking it in ${cacheDir}`),
    isUsable: async (unpacked) => (await programIn(unpacked, options, env)) !== undefined,
  });
  if (root !== undefined) return programIn(root, options, env);
  console.warn(`SKIPPED: ${packages[0]} is not installed, and there is no apt to fetch it with.`);
  return undefined;
}

async function programIn(
  root: string,
  { path, version = '--version' }: DebianProgramOptions,
  env: NodeJS.ProcessEnv,
): Promise<DebianProgram | undefined> {
  const libraryPath = await libraryPathOf(root);
  // Some packages keep libraries of their own in a folder below, where only they look for them.
  const folders = await Promise.all(libraryPath.split(delimiter).map(subfolders));
  const fonts = join(root, 'fonts.conf');
  const program = {
    command: join(root, path),
    env: {
      ...env,
      LD_LIBRARY_PATH: [libraryPath, ...folders.flat()].join(delimiter),
      FONTCONFIG_FILE: fonts,
    },
  };
  await mkdir(join(root, 'fonts-cache'), { recursive: true });
  await writeFile(fonts, fontConfiguration(root));
  return (await printsVersion(program, version)) ? program : undefined;
}

/**
 * Monitoring plugins print their version with an exit code that is not 0, and sshd to its standard error; with a library
 * that is missing, a program fails and prints nothing to its standard output.
 */
function printsVersion({ command, env }: DebianProgram, version: string): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(command, [version], { env }, (error, stdout) => resolve(error === null || stdout.trim() !== ''));
  });
}

async function subfolders(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(folder, name));
}

/** A fresh machine has no fonts, so that the unpacked ones are looked for, too. */
function fontConfiguration(root: string): string {
  return `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir>${root}/usr/share/fonts</dir>
  <match target="pattern">
    <edit name="family" mode="append_last"><string>DejaVu Sans</string></edit>
  </match>
  ${alias('monospace', 'DejaVu Sans Mono')}
  ${alias('ui-monospace', 'DejaVu Sans Mono')}
  <cachedir>${root}/fonts-cache</cachedir>
</fontconfig>
`;
}

/** Without the system's own configuration, any font may stand for a generic one. */
function alias(generic: string, font: string): string {
  return `<alias><family>${generic}</family><prefer><family>${font}</family></prefer></alias>`;
}
