import { isAbsolute, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { quoteWord } from '../core/command-line.ts';

/** How a user who works in a folder calls this orc. */
export interface HowToCall {
  /** The command in that folder: `npx orc` only where npx runs this orc, not the package of that name in the registry. */
  here: string;
  /** A line for any shell, after which `orc` works in every folder with the Redis of this folder's `orc local`. */
  elsewhere: string;
}

/**
 * @param packageRoot folder of this package, as a URL that ends in `/`
 * @param redisUrl where the private Redis is
 */
export function howToCall(packageRoot: URL, directory: string, redisUrl: string): HowToCall {
  const root = fileURLToPath(packageRoot).replace(/\/$/, '');
  const executable = quoteWord(`${root}/dist/orc.js`);
  const setting = `REDIS_URL=${quoteWord(redisUrl)}`;
  const [, project] = /^(.*)\/node_modules\/(?:@[^/]+\/)?[^/]+$/.exec(root) ?? [];
  // npx runs the package that it is called in, or one of a folder node_modules here or further up.
  const isLocal = isWithin(directory, project ?? root);
  if (project !== undefined && !isLocal) return { here: 'orc', elsewhere: `export ${setting}` };
  return {
    here: isLocal ? 'npx orc' : executable,
    elsewhere: `alias orc=${quoteWord(`${setting} ${executable}`)}`,
  };
}

function isWithin(directory: string, folder: string): boolean {
  const path = relative(folder, directory);
  return path !== '..' && !path.startsWith('../') && !isAbsolute(path);
}
