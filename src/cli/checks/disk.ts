import { mkdtemp, rmdir, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { checkOwnFolder, DATA_FOLDER, DataFolderError } from '../../local/data-folder.ts';
import { type Finding, ok, problem, warning } from '../../ops/findings/finding.ts';

/** Bytes. The append-only file may double while Redis rewrites it. */
const LOW_SPACE = 1_073_741_824;
const NO_SPACE = 104_857_600;

/** Whether `orc local` can write to the disk and has enough space. */
export async function checkDisk(directory: string): Promise<Finding> {
  const cure = 'start orc in a folder that you may write to, on a disk with free space';
  let dataDir: string | undefined;
  try {
    dataDir = await findDataDir(directory);
  } catch (error) {
    return problem('disk', (error as Error).message, cure);
  }
  // Without one, `orc local` will create it here.
  const folder = dataDir ?? directory;
  dataDir ??= join(directory, DATA_FOLDER);
  try {
    await rmdir(await mkdtemp(join(folder, '.orc-doctor-')));
  } catch (error) {
    return problem('disk', `${dataDir} cannot be written: ${(error as Error).message}`, cure);
  }
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const message = `${(free / 1_073_741_824).toFixed(1)} GiB free for ${dataDir}`;
  const moreSpace = `free space on the disk of ${folder}`;
  if (free < NO_SPACE) return problem('disk', message, moreSpace);
  return free < LOW_SPACE ? warning('disk', message, moreSpace) : ok('disk', message);
}

/**
 * The data folder of a directory, or of the nearest directory above it that has one of this user's.
 *
 * @throws DataFolderError when the directory's own data folder cannot be trusted
 */
async function findDataDir(directory: string): Promise<string | undefined> {
  for (let at = directory; ; at = dirname(at)) {
    const dataDir = join(at, DATA_FOLDER);
    try {
      await checkOwnFolder(dataDir);
      return dataDir;
    } catch (error) {
      if (error instanceof DataFolderError && at === directory) throw error;
    }
    if (dirname(at) === at) return undefined;
  }
}
