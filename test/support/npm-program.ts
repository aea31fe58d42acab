import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

interface NpmProgram {
  name: string;
  version: string;
  program: string;
  /** Whether the scripts of the package are run: some put the program in its place. */
  hasScripts?: boolean;
}

/**
 * The path of a program of an npm package, which is installed into the user's cache.
 *
 * @throws when the package cannot be had
 */
export async function findNpmProgram({
  name,
  version,
  program,
  hasScripts = false,
}: NpmProgram): Promise<string> {
  const { XDG_CACHE_HOME, HOME = homedir() } = process.env;
  const programs = join(XDG_CACHE_HOME || join(HOME, '.cache'), 'orc', 'test-programs');
  const folder = join(programs, `${name.replace('/', '+')}-${version}`);
  const path = join(folder, 'node_modules', '.bin', program);
  if (existsSync(path)) return path;
  console.warn(`${name} is not installed; installing it in ${folder}`);
  await mkdir(programs, { recursive: true });
  const unfinished = await mkdtemp(join(programs, 'unfinished-'));
  try {
    await writeFile(join(unfinished, 'package.json'), '{"private":true}');
    const args = ['install', `--ignore-scripts=${!hasScripts}`, '--no-audit', '--no-fund'];
    await promisify(execFile)('npm', [...args, `${name}@${version}`], { cwd: unfinished });
    await rename(unfinished, folder);
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
  return path;
}
