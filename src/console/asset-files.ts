import { readFileSync } from 'node:fs';
import { PACKAGE_ROOT } from '../core/package-root.ts';

/** Output of the build step that makes the files which the pages load. */
export const ASSETS_FILE = new URL('dist/console.json', PACKAGE_ROOT);

/** The files that the pages load, by their name in the layout: where they are served, with a hash of their content. */
export interface AssetHrefs {
  stylesheet: string;
  script: string;
  icon: string;
}

export interface Assets {
  hrefs: AssetHrefs;
  /** By path. */
  files: Record<string, { type: string; text: string }>;
}

let assets: Assets | undefined;

/**
 * Reads the files on the first call.
 *
 * @throws when they are not built
 */
export function readAssets(): Assets {
  try {
    assets ??= JSON.parse(readFileSync(ASSETS_FILE, 'utf8')) as Assets;
    return assets;
  } catch (cause) {
    throw new Error("The console's files are not built. Run `npm run build`.", { cause });
  }
}
