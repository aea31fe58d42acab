import { expect, test } from 'vitest';
import { LastLine } from '../../src/worker/last-line.ts';

function lastLineOf(...pieces: string[]): string | undefined {
  const last = new LastLine();
  for (const piece of pieces) last.add(Buffer.from(piece));
  return last.text();
}

const CRASH = `/srv/app.js:1
throw new TypeError('no user')
^

TypeError: no user
    at Object.<anonymous> (/srv/app.js:1:7)
    at Module._compile (node:internal/modules/cjs/loader:1554:14) {
  code: 'E_USER',
  stack: []
}

Node.js v20.19.0
`;

test.each<[what: string, pieces: string[], line: string | undefined]>([
  ['nothing', [], undefined],
  ['blank lines', ['\n \t\n'], undefined],
  ['several lines', ['first\nlast\n\n  \n'], 'last'],
  ['lines in pieces', ['one\ntw', 'o', '\n'], 'two'],
  ['a progress bar', ['10 %\r50 %\rfailed at 50 %'], 'failed at 50 %'],
  ['white space', ['  a \t b\u00a0 c  '], 'a b c'],
  ['colours', ['\u001b[31mError:\u001b[0m no such table'], 'Error: no such table'],
  ['control characters', ['a\u0007b\u0000c\u202ed'], 'a\\u0007b\\u0000c\\u202ed'],
  ['bytes that are not UTF-8', ['ok'], 'ok'],
  ['punctuation at the end', ['{\n  "message": "full"\n}\n'], '"message": "full"'],
  ['only punctuation', ['---\n'], '---'],
  ['a JavaScript stack', ['Error: no user\n    at f (/a.js:1:1)\n    at g (/a.js:2:2)\n'], 'Error: no user'],
  ['a crash of Node', [CRASH], 'TypeError: no user'],
])('of %s, the last line that says something is kept', (_, pieces, line) => {
  expect(lastLineOf(...pieces)).toBe(line);
});

test('a line has at most 300 characters, and no half of one', () => {
  const line = lastLineOf('😀'.repeat(400)) ?? '';
  expect(line.length).toBeLessThanOrEqual(300);
  expect(line).toMatch(/^(😀)+…$/u);
  expect(lastLineOf('x'.repeat(300))).toBe('x'.repeat(300));
  expect(lastLineOf('\u0001'.repeat(299))?.length).toBe(300);
});

test('of a line that is longer than what is held, the end is kept and marked as such', () => {
  const line = lastLineOf('first\n', 'ü'.repeat(5000), ' end') ?? '';
  expect(line).toMatch(/^…ü+…$/);
  expect(lastLineOf(`${'x'.repeat(100_000)}\nlast`)).toBe('last');
});
