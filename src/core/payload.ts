import { isUtf8 } from 'node:buffer';

/** A trigger payload without a body. */
export const EMPTY_PAYLOAD = '{}';

/**
 * Reads JSON without changing it.
 *
 * @returns the text, whose bytes are those received, and its value; undefined unless they are JSON in UTF-8 (RFC 8259)
 */
export function readJson(bytes: Buffer): { text: string; value: unknown } | undefined {
  if (!isUtf8(bytes)) return undefined;
  const text = bytes.toString('utf8');
  try {
    return { text, value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}
