/** One preference of a list: a token, and anything up to the next comma outside of quotes. */
const PREFERENCE = /(?:[^,"]|"(?:[^"\\]|\\.)*"?)+/g;

/** `return` with its value, which may be quoted; parameters are ignored. */
const RETURN = /^\s*return\s*=\s*"?([a-z]+)"?\s*(?:;|$)/i;

/** Whether a `Prefer` header has `return=representation` (RFC 7240, section 4.2). Of several `return`, the first counts. */
export function prefersRepresentation(header: string | string[] | undefined): boolean {
  const preferences = String(header ?? '').match(PREFERENCE) ?? [];
  const wanted = preferences.flatMap((preference) => RETURN.exec(preference)?.[1] ?? []);
  return wanted[0]?.toLowerCase() === 'representation';
}
