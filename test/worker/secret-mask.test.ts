import { array, assert, constantFrom, property, string } from 'fast-check';
import { expect, test } from 'vitest';
import { SecretMask } from '../../src/worker/secret-mask.ts';

function masked(values: string[], pieces: string[]): string {
  const stream = new SecretMask(values).stream();
  return Buffer.concat([...pieces.map((piece) => stream.write(Buffer.from(piece))), stream.end()]).toString();
}

test.each<[what: string, values: string[], pieces: string[], shown: string]>([
  ['a value of 8 characters', ['12345678'], ['a 12345678 b'], 'a *** b'],
  ['no shorter value', ['1234567'], ['a 1234567 b'], 'a 1234567 b'],
  ['a value that comes byte by byte', ['pässword'], [...'a pässword b'], 'a *** b'],
  ['the longer of two that begin alike', ['12345678', '1234567890'], ['1234567', '890'], '***'],
  ['the shorter of two that begin alike', ['12345678', '1234567890'], ['12345678', '9-'], '***9-'],
  ['two that overlap, with one mask', ['abcdefgh', 'fghijklm'], ['-abcdefgh', 'ijklm-'], '-***-'],
  ['one that overlaps itself', ['abababab'], ['abababab', 'ab'], '***'],
  ['each line of a value', ['-----BEGIN\nabcdefghij\n'], ['-----BEGIN\r\nabcdefghij'], '***\r\n***'],
  ['the beginning of a value at the end', ['1234567890'], ['a 12345678'], 'a ***'],
  ['not what might have become a value', ['1234567890'], ['a 1234567', 'x'], 'a 1234567x'],
])('hides %s', (_, values, pieces, shown) => {
  expect(masked(values, pieces)).toBe(shown);
});

test('hides the same whatever the pieces are, and never shows a value', () => {
  const letters = (minLength: number, maxLength: number) =>
    string({ unit: constantFrom('a', 'b'), minLength, maxLength });
  const values = array(letters(8, 12), { minLength: 1, maxLength: 3 });
  void assert(
    property(values, array(letters(0, 9), { maxLength: 8 }), (secrets, pieces) => {
      const shown = masked(secrets, pieces);
      expect(shown).toBe(masked(secrets, [pieces.join('')]));
      for (const secret of secrets) expect(shown).not.toContain(secret);
    }),
    { numRuns: 20_000 },
  );
});
