import { mkdtemp, rmdir, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DATA_FOLDER } from '../../local/local-state.ts';
import { type Finding, ok, problem, warning } from './finding.ts';

/** Bytes. The append-only file may double while Redis writes it anew. */
const LOW_SPACE = 1_073_741_824;
const NO_SPACE = 104_857_600;

/** Whether the disk takes what `orc local` writes. */
export async function checkDisk(directory: string): Promise<Finding> {
  const dataDir = await findDataDir(directory);
  // Where there is none yet, `orc local` makes one.
  const folder = (await exists(dataDir)) ? dataDir : dirname(dataDir);
  const cure = 'start orc in a folder that you may write to, on a disk with room';
  try {
    await rmdir(await mkdtemp(join(folder, '.orc-doctor-')));
  } catch (error) {
    return problem('disk', `${dataDir} cannot be written: ${(error as Error).message}`, cure);
  }
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const message = `${(free / 1_073_741_824).toFixed(1)} GiB free for ${dataDir}`;
  if (free < NO_SPACE) return problem('disk', message, cure);
  return free < LOW_SPACE ? warning('disk', message, cure) : ok('disk', message);
}

/** The data folder of a directory, or of the nearest directory above it that has one; else the one it would have. */
async function findDataDir(directory: string): Promise<string> {
  for (let at = directory; ; at = dirname(at)) {
    const dataDir = join(at, DATA_FOLDER);
    if (await exists(dataDir)) return dataDir;
    if (dirname(at) === at) return join(directory, DATA_FOLDER);
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
