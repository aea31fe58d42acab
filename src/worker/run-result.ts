import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { depthOf } from '../core/depth-of.ts';
import { MAX_RESULT_BYTES } from '../core/run.ts';
import type { SecretMask } from './secret-mask.ts';

/** Deeper ones stop many programs that read JSON, orc's command line included. */
const MAX_RESULT_DEPTH = 100;

/** What an attempt leaves as its result, as JSON text, or why that is none. */
export type FoundResult = { text: string } | { problem: string };

/** The strings and numbers of a JSON text. */
const JSON_VALUES = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/** Judges bytes that are meant to be a result. @param name of what they come from, the beginning of a sentence */
export function parseResult(name: string, bytes: Buffer): FoundResult {
  if (bytes.length > MAX_RESULT_BYTES) {
    return { problem: `${name} is larger than ${MAX_RESULT_BYTES} bytes, so it is not kept as the result.` };
  }
  const text = isUtf8(bytes) ? bytes.toString() : '';
  const problem = problemOf(text);
  return problem === undefined
    ? { text }
    : { problem: `${name} ${problem}, so it is not kept as the result.` };
}

function problemOf(text: string): string | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    if (!isObject) return 'is not a JSON object';
    return depthOf(value) > MAX_RESULT_DEPTH ? `is nested deeper than ${MAX_RESULT_DEPTH} levels` : undefined;
  } catch {
    return 'is not JSON in UTF-8';
  }
}

/**
 * Reads the file that a command was told to write its result to. Only a regular file counts, and no more of it is read than a
 * result may have; a symbolic link is not followed, and a pipe or a device is not waited for.
 *
 * @returns undefined when there is no file
 */
export async function readResultFile(path: string): Promise<FoundResult | undefined> {
  const name = 'The file $ORC_RESULT_FILE';
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      if (!(await file.stat()).isFile())
        return { problem: `${name} is not a regular file, so it is not read.` };
      const buffer = Buffer.alloc(MAX_RESULT_BYTES + 1);
      let size = 0;
      for (let bytesRead = -1; bytesRead !== 0 && size < buffer.length; size += bytesRead) {
        ({ bytesRead } = await file.read(buffer, size, buffer.length - size));
      }
      return parseResult(name, buffer.subarray(0, size));
    } finally {
      await file.close();
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    if (code === 'ELOOP') return { problem: `${name} is a symbolic link, so it is not read.` };
    return { problem: `${name} cannot be read: ${message}.` };
  }
}

/**
 * Hides secrets in the strings and numbers of a JSON text, also those written with escapes; the rest stays as it is, byte
 * for byte.
 */
export function maskResult(text: string, mask: SecretMask): FoundResult {
  const masked = text.replace(JSON_VALUES, (token) => {
    const value = token.startsWith('"') ? (JSON.parse(token) as string) : token;
    const shown = mask.text(value);
    return shown === value ? token : JSON.stringify(shown);
  });
  if (mask.text(masked) === masked) return { text: masked };
  return { problem: 'The result contains a secret that spans several of its values, so it is not kept.' };
}
