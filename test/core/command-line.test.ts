import { expect, test } from 'vitest';
import { wordsOf } from '../../src/core/command-line.ts';

test.each([
  ['opencode acp', ['opencode', 'acp']],
  ['  a   b ', ['a', 'b']],
  [`a 'b c' "d e"`, ['a', 'b c', 'd e']],
  [`a\\ b "say \\"so\\"" '$HOME;|'`, ['a b', 'say "so"', '$HOME;|']],
  [`--x='1 2'"3"4`, ['--x=1 234']],
  [`a '' ""`, ['a', '', '']],
  ['', []],
])('the words of %j are %j', (line, words) => {
  expect(wordsOf(line)).toEqual(words);
});

test.each(["a 'b", 'a "b', 'a "b\\"', 'a\\'])('%j has no end', (line) => {
  expect(wordsOf(line)).toBeUndefined();
});
