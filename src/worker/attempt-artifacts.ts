import { createHash } from 'node:crypto';
import { constants, type Dirent } from 'node:fs';
import { type FileHandle, open, opendir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Artifact,
  type ArtifactList,
  isArtifactName,
  MAX_ARTIFACT_DEPTH,
  MAX_ARTIFACTS,
  type Omission,
  type OmittedFile,
} from '../core/artifact.ts';

/** Files that are named as left out; more are only counted. */
const MAX_OMITTED = 100;

/** Entries of a folder that are looked at, over all its folders. */
const MAX_ENTRIES = 1000;

/** Characters shown of a name that is not kept. */
const SHOWN_NAME = 512;

/** A link is not followed, and opening a FIFO does not wait for its other end. */
const FILE_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const FOLDER_FLAGS = FILE_FLAGS | constants.O_DIRECTORY;

/**
 * Gathers the files that an attempt's action leaves, up to a number of bytes and {@link MAX_ARTIFACTS}, in memory. Any type
 * of action can add to it until the attempt has ended. Nothing here throws: what cannot be kept is listed with the reason.
 */
export class AttemptArtifacts {
  /** Of all files together. */
  readonly limitBytes: number;
  readonly #files: { artifact: Artifact; data: Buffer }[] = [];
  readonly #omitted: OmittedFile[] = [];
  #omittedCount = 0;
  #bytes = 0;
  #entries = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  /**
   * Adds the files in a folder and in its folders, in the order of their names; each that still fits.
   *
   * Links are never followed, neither as files nor as folders. On Linux each name is opened in the open folder that lists
   * it, so that this also holds while a process changes the folder; elsewhere by path, when the action's processes
   * have ended. A hard link counts as a file if it belongs to the worker's user, who may read such a file anyway.
   */
  async collect(folder: string): Promise<void> {
    await this.#collect(folder, '', 0);
  }

  /** Adds one file under a name. It is not added when it is a link, or when the name is taken. */
  async addFile(name: string, path: string): Promise<void> {
    if (!isArtifactName(name)) return this.#omit(name, 'bad_name');
    let file: FileHandle | undefined;
    try {
      file = await open(path, FILE_FLAGS);
      await this.#add(name, file);
    } catch (error) {
      this.#omit(name, reasonFor(error));
    } finally {
      await file?.close();
    }
  }

  /** What was added so far. */
  list(): ArtifactList {
    const artifacts = this.#files.map(({ artifact }) => artifact);
    return { artifacts, omitted: [...this.#omitted], omittedCount: this.#omittedCount };
  }

  /** The bytes of each artifact, in the order of the list. */
  data(): Buffer[] {
    return this.#files.map(({ data }) => data);
  }

  async #collect(path: string, prefix: string, depth: number): Promise<void> {
    let folder: FileHandle | undefined;
    try {
      folder = await open(path, FOLDER_FLAGS);
      const place = process.platform === 'linux' ? `/proc/self/fd/${folder.fd}` : path;
      for (const entry of await this.#entriesOf(place, prefix)) {
        const name = prefix + entry.name;
        // What is not UTF-8 was read as this character.
        if (name.includes('\ufffd')) this.#omit(name, 'bad_name');
        else if (entry.isFile()) await this.addFile(name, join(place, entry.name));
        else if (!entry.isDirectory()) this.#omit(name, 'not_a_file');
        else if (depth === MAX_ARTIFACT_DEPTH) this.#omit(`${name}/`, 'too_deep');
        else await this.#collect(join(place, entry.name), `${name}/`, depth + 1);
      }
    } catch (error) {
      this.#omit(prefix || '.', reasonFor(error));
    } finally {
      await folder?.close();
    }
  }

  async #entriesOf(path: string, prefix: string): Promise<Dirent[]> {
    const entries: Dirent[] = [];
    for await (const entry of await opendir(path)) {
      this.#entries += 1;
      if (this.#entries > MAX_ENTRIES) {
        this.#omit(`${prefix}…`, 'too_many');
        break;
      }
      entries.push(entry);
    }
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async #add(name: string, file: FileHandle): Promise<void> {
    const stats = await file.stat();
    const { size, nlink, uid } = stats;
    if (!stats.isFile()) return this.#omit(name, 'not_a_file');
    if (nlink > 1 && uid !== process.geteuid?.()) return this.#omit(name, 'hard_link', size);
    if (this.#files.some(({ artifact }) => artifact.name === name))
      return this.#omit(name, 'duplicate', size);
    if (this.#files.length >= MAX_ARTIFACTS) return this.#omit(name, 'too_many', size);
    if (size > this.limitBytes - this.#bytes) return this.#omit(name, 'too_large', size);
    const data = await readUpTo(file, size);
    const sha256 = createHash('sha256').update(data).digest('hex');
    this.#bytes += data.length;
    this.#files.push({ artifact: { name, bytes: data.length, sha256 }, data });
  }

  #omit(name: string, reason: Omission, bytes?: number): void {
    this.#omittedCount += 1;
    if (this.#omitted.length === MAX_OMITTED) return;
    const shown = name.slice(0, SHOWN_NAME);
    this.#omitted.push({ name: shown, ...(bytes !== undefined && { bytes }), reason });
  }
}

/** The beginning of a file: one that still grows is kept as long as it was when it was measured. */
async function readUpTo(file: FileHandle, size: number): Promise<Buffer> {
  const data = Buffer.alloc(size);
  let length = 0;
  while (length < size) {
    const { bytesRead } = await file.read(data, length, size - length, length);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  return data.subarray(0, length);
}

/** ELOOP: the name is a link now. ENOTDIR: so is that of a folder. */
function reasonFor(error: unknown): Omission {
  const { code = '' } = error as NodeJS.ErrnoException;
  return ['ELOOP', 'ENOTDIR', 'ENXIO'].includes(code) ? 'not_a_file' : 'unreadable';
}
