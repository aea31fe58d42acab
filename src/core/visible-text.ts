/** Control characters, and characters that move the cursor, reorder text or take no space on a screen. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** Those of them that some scripts and emoji need. */
const JOINERS = '\u200c\u200d\ufe0e\ufe0f';

const SHORT_FORMS: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/**
 * Makes text that others wrote safe for a terminal: control characters are shown as JSON escapes them.
 *
 * @param allowed characters that are sent unchanged
 */
export function visible(text: string, allowed = ''): string {
  return text.replace(INVISIBLE, (character) => {
    if (JOINERS.includes(character) || allowed.includes(character)) return character;
    return SHORT_FORMS[character] ?? character.split('').map(codeUnit).join('');
  });
}

function codeUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
