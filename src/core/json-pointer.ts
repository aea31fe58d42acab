/** RFC 6901: empty, or parts that begin with a slash; in them, `~0` stands for a tilde and `~1` for a slash. */
const JSON_POINTER = /^(\/([^~/]|~[01])*)*$/;

export function isJsonPointer(text: string): boolean {
  return JSON_POINTER.test(text);
}

/**
 * What a JSON Pointer (RFC 6901) leads to.
 *
 * @param pointer a valid one
 * @returns undefined when there is nothing
 */
export function valueAt(document: unknown, pointer: string): unknown {
  const parts = pointer.split('/').slice(1);
  return parts
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<unknown>((value, part) => {
      if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined;
      if (Array.isArray(value) && !/^(0|[1-9]\d*)$/.test(part)) return undefined;
      return (value as Record<string, unknown>)[part];
    }, document);
}
