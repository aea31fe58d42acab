import { createHash } from 'node:crypto';
import { lstat, mkdir, open } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { type Artifact, type ArtifactList, describeOmitted, isArtifactName } from '../core/artifact.ts';
import { isTerminal } from '../core/run.ts';
import { visible } from '../core/visible-text.ts';
import { explainDropped } from '../ops/kept.ts';
import type { RunArtifacts } from '../store/artifacts.ts';
import type { Store } from '../store/store.ts';
import { type CommandContext, withStore } from './context.ts';
import type { OrcCommand } from './orc-command.ts';
import { CommandError, type Output, UsageError } from './output.ts';
import { getRun } from './run-control.ts';
import { addRunReference, findRunId, type RunReferenceOptions } from './run-reference.ts';

const NONE: ArtifactList = { artifacts: [], omitted: [], omittedCount: 0 };

interface ArtifactsOptions extends RunReferenceOptions {
  download?: string;
  json?: boolean;
}

/** Adds `orc runs artifacts`. */
export function addRunArtifacts(group: OrcCommand, context: CommandContext): void {
  const { output } = context;
  addRunReference(
    group
      .command('artifacts')
      .description('list the files that a run left in $ORC_ARTIFACTS_DIR, or download them'),
  )
    .option('--download <dir>', 'write them into this directory; existing files are never overwritten')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The files of the last attempt that was executed are kept with the run, up to ARTIFACT_LIMIT_BYTES and 100 files.
Files that are left out are listed with the reason. Downloaded files and folders belong to you alone (0600, 0700);
control characters in their names are written as JSON escapes them.`,
      examples: [
        'orc runs artifacts --last nightly-report',
        'orc runs artifacts run_01a1fd79-2020-716f-b65b-e40f10ea5e54 --download report',
      ],
    })
    .action(async (reference: string | undefined, options: ArtifactsOptions) => {
      const { download: folder, json } = options;
      if (folder === '') throw new UsageError('--download needs a directory, such as --download report.');
      const target = folder && resolve(context.directory, folder);
      const found = await withStore(context, async (store) =>
        read(store, await findRunId(store, reference, options), target),
      );
      if (!json) return print(found, output);
      const { artifacts, omitted, omittedCount } = found.list ?? NONE;
      const { runId, files, dropped } = found;
      output.json({ runId, artifacts, omitted, omittedCount, files, dropped: dropped !== undefined });
    });
}

interface Found {
  runId: string;
  list?: RunArtifacts | undefined;
  /** Where they were downloaded to. */
  files?: string[];
  /** Why there are none any more. */
  dropped?: string | undefined;
}

function print({ list, files, dropped }: Found, output: Output): void {
  const { artifacts, ...left } = list ?? NONE;
  for (const line of describeAllOmitted(left)) output.err(`not kept: ${line}\n`);
  if (artifacts.length === 0) output.line(dropped ?? 'The run has no artifacts.');
  else if (files) for (const file of files) output.line(file);
  else {
    const rows = artifacts.map(({ name, bytes, sha256 }) => [`${bytes}`, sha256, name]);
    output.table(['BYTES', 'SHA256', 'NAME'], rows);
  }
}

/** @param target where they are to be downloaded to */
async function read(store: Store, runId: string, target: string | undefined): Promise<Found> {
  const { id, status } = await getRun(store, runId);
  const list = await store.artifacts.list(id);
  if (target && !isTerminal(status))
    throw new CommandError(`The run ${id} has not ended. First: orc runs watch ${id}`);
  if (!list) return { runId, dropped: await explainDropped(store, id) };
  if (!target) return { runId, list };
  return { runId, list, files: await download(store, id, list, target) };
}

/** One line for each file that was left out. */
export function describeAllOmitted({
  omitted,
  omittedCount,
}: Pick<ArtifactList, 'omitted' | 'omittedCount'>): string[] {
  const others = omittedCount - omitted.length;
  return [...omitted.map(describeOmitted), ...(others > 0 ? [`${others} more files`] : [])];
}

/**
 * Writes the artifacts of a run into a directory, which is made when there is none. No file is overwritten, no link followed,
 * nothing written outside of the directory.
 *
 * @param folder its absolute path
 * @returns the paths of the files
 * @throws CommandError when a file exists or cannot be written; files written before it stay
 */
async function download(store: Store, runId: string, list: RunArtifacts, folder: string): Promise<string[]> {
  const targets = list.artifacts.map((artifact) => ({ artifact, path: pathIn(folder, artifact) }));
  for (const { path } of targets) {
    if (await exists(path))
      throw new CommandError(`${path} already exists. Choose another directory; nothing was written.`);
  }
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    for (const { artifact, path } of targets) {
      await makeFolders(folder, path);
      await write(store, runId, artifact, path);
    }
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(`The artifacts cannot be written: ${(error as Error).message}.`, { cause: error });
  }
  return targets.map(({ path }) => path);
}

/** Where an artifact is written. Its name was checked when it was stored; whoever can write to Redis could change it since. */
function pathIn(folder: string, { name }: Artifact): string {
  if (!isArtifactName(name)) {
    throw new CommandError(`${JSON.stringify(name)} is not the name of an artifact; nothing was written.`);
  }
  return join(folder, visible(name));
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    ({ code }: NodeJS.ErrnoException) => code !== 'ENOENT' && code !== 'ENOTDIR',
  );
}

/** Makes the folders between the directory and a file in it. @throws CommandError when one of them is a link */
async function makeFolders(folder: string, path: string): Promise<void> {
  const parent = dirname(path);
  if (parent === folder) return;
  await makeFolders(folder, parent);
  await mkdir(parent, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  if ((await lstat(parent)).isDirectory()) return;
  throw new CommandError(`${parent} is not a folder. Choose another directory.`);
}

async function write(store: Store, runId: string, { name, sha256 }: Artifact, path: string): Promise<void> {
  const opened = await store.artifacts.open(runId, name);
  if (!opened) throw new CommandError(`The artifacts of ${runId} are no longer kept.`);
  // Fails when the path exists, also as a link.
  const file = await open(path, 'wx', 0o600);
  try {
    const hash = createHash('sha256');
    for await (const chunk of opened.chunks) {
      hash.update(chunk);
      await file.writeFile(chunk);
    }
    if (hash.digest('hex') !== sha256)
      throw new CommandError(`${path} does not have the hash it was stored with.`);
  } finally {
    await file.close();
  }
}
