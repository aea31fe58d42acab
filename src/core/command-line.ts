/** One word of a command line, quoted so that a shell and {@link wordsOf} read it as it is. */
export function quoteWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A word, or a part of one: quoted, escaped or plain. */
const PART = /'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^\s'"\\]+)/suy;
const SPACE = /\s+/uy;

/**
 * The words of a command line, quoted as in a shell (POSIX, "Quoting"): single quotes keep everything, double quotes and a
 * backslash keep spaces. Nothing else of a shell: no variables, no patterns, no operators.
 *
 * @returns undefined when a quote is not closed
 */
export function wordsOf(commandLine: string): string[] | undefined {
  const words: string[] = [];
  let word: string | undefined;
  for (let at = 0; at < commandLine.length; ) {
    SPACE.lastIndex = at;
    PART.lastIndex = at;
    if (SPACE.test(commandLine)) {
      if (word !== undefined) words.push(word);
      word = undefined;
      at = SPACE.lastIndex;
      continue;
    }
    const part = PART.exec(commandLine);
    if (!part) return undefined;
    const [, single, double, escaped, plain] = part;
    word = `${word ?? ''}${single ?? double?.replace(/\\(["\\$`])/g, '$1') ?? escaped ?? plain}`;
    at = PART.lastIndex;
  }
  return word === undefined ? words : [...words, word];
}
