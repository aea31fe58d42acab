import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Config } from '../../config.ts';
import { openWorkFolders, sweepWorkFolders } from '../work-folders.ts';
import { openGit } from './git.ts';
import { openMirrors } from './mirrors.ts';
import type { WorkspaceSettings } from './workspace.ts';

export interface Workspaces extends WorkspaceSettings {
  /** Whether there is a git to check out with. */
  hasGit(): Promise<boolean>;
  /** Removes what dead workers of this user have left. */
  sweep(report: (error: Error) => void): Promise<void>;
  /** Removes the workspaces that are left. Idempotent. */
  close(): Promise<void>;
}

/**
 * What a worker needs to check out repositories. Workspaces lie beside the mirrors and not in the temporary folder: that
 * may be memory, and objects are shared by hard links. Nothing is made before the first attempt needs it.
 *
 * @param environment the worker's own
 * @param removeAtEnd is told of a folder that is to be removed when this process has died
 */
export function openWorkspaces(
  config: Pick<Config, 'WORKSPACE_DIR' | 'REPOSITORY_CACHE_BYTES'>,
  environment: Readonly<NodeJS.ProcessEnv>,
  workerId: string,
  removeAtEnd: (folder: string) => void,
): Workspaces {
  const folder = config.WORKSPACE_DIR ?? defaultFolder(environment);
  const attempts = join(folder, 'workspaces');
  const git = openGit(environment, workerId);
  const workFolders = openWorkFolders(removeAtEnd, attempts);
  return {
    git,
    mirrors: openMirrors({
      folder: join(folder, 'repositories'),
      maxBytes: config.REPOSITORY_CACHE_BYTES,
    }),
    workFolders,
    hasGit: async () => {
      const { status } = await git(['--version'], { signal: new AbortController().signal });
      return status !== 'missing';
    },
    sweep: (report) => sweepWorkFolders(report, attempts),
    close: workFolders.close,
  };
}

/** XDG Base Directory Specification. */
function defaultFolder({ XDG_CACHE_HOME, HOME }: Readonly<NodeJS.ProcessEnv>): string {
  const cache = XDG_CACHE_HOME?.startsWith('/') ? XDG_CACHE_HOME : join(HOME || homedir(), '.cache');
  return join(cache, 'orc');
}
