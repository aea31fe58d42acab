/** Control characters, and characters that reorder text or take no space on a screen. */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

/**
 * Text that others wrote, for a message: in quotes as JSON has it, without characters that a terminal obeys, and cut.
 *
 * @param maxLength in characters
 * @param inQuotes whether it is quoted; false for what is JSON already
 */
export function quoted(text: string, maxLength: number, inQuotes = true): string {
  const short = text.length > maxLength ? `${text.slice(0, maxLength)}…` : text;
  return (inQuotes ? JSON.stringify(short) : short).replace(INVISIBLE, (character) =>
    character
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}
