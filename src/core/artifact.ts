import { visible } from './visible-text.ts';

/** Most artifacts of a run. */
export const MAX_ARTIFACTS = 100;

/** Longest name, folders included, in bytes of UTF-8. */
const MAX_NAME_BYTES = 512;

/** Most folders in a name. */
export const MAX_ARTIFACT_DEPTH = 8;

/** A file that a run's action left and that is kept with the run. */
export interface Artifact {
  /** A relative POSIX path, see {@link isArtifactName}. It may contain control characters. */
  name: string;
  bytes: number;
  /** In hexadecimal. */
  sha256: string;
}

/** Why a file that an action left is not kept, in words that follow its name. */
export const OMISSIONS = {
  too_large: 'does not fit into ARTIFACT_LIMIT_BYTES',
  too_many: `is beyond the first ${MAX_ARTIFACTS} files`,
  too_deep: `is more than ${MAX_ARTIFACT_DEPTH} folders deep`,
  not_a_file: 'is not a file; links and devices are not followed',
  hard_link: "is a hard link to another user's file",
  bad_name: `has a name that is not UTF-8 or longer than ${MAX_NAME_BYTES} bytes`,
  duplicate: 'has the name of another artifact',
  unreadable: 'cannot be read',
} as const;
export type Omission = keyof typeof OMISSIONS;

/** A file that an action left and that is not kept. */
export interface OmittedFile {
  name: string;
  /** Absent when the file was not opened. */
  bytes?: number;
  reason: Omission;
}

/** What an attempt left, and what of it is not kept. */
export interface ArtifactList {
  artifacts: Artifact[];
  /** The first of them. */
  omitted: OmittedFile[];
  omittedCount: number;
}

/** Whether a name is a relative path without `.` and `..`, of bounded length and depth: it stays in the folder it is written to. */
export function isArtifactName(name: string): boolean {
  const parts = name.split('/');
  return (
    Buffer.byteLength(name) <= MAX_NAME_BYTES &&
    parts.length <= MAX_ARTIFACT_DEPTH + 1 &&
    parts.every((part) => part !== '' && part !== '.' && part !== '..' && !part.includes('\0'))
  );
}

/** `"big.bin" (5242880 bytes) does not fit …`, with control characters of the name made visible. */
export function describeOmitted({ name, bytes, reason }: OmittedFile): string {
  return `${visible(JSON.stringify(name))}${bytes === undefined ? '' : ` (${bytes} bytes)`} ${OMISSIONS[reason]}`;
}
