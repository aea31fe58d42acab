import { expect, test } from 'vitest';
import { isJsonPointer, valueAt } from '../../src/core/json-pointer.ts';

/** The examples of RFC 6901, section 5. */
const DOCUMENT = {
  foo: ['bar', 'baz'],
  '': 0,
  'a/b': 1,
  'c%d': 2,
  'e^f': 3,
  'g|h': 4,
  'i\\j': 5,
  'k"l': 6,
  ' ': 7,
  'm~n': 8,
};

test.each([
  ['', DOCUMENT],
  ['/foo', ['bar', 'baz']],
  ['/foo/0', 'bar'],
  ['/', 0],
  ['/a~1b', 1],
  ['/c%d', 2],
  ['/e^f', 3],
  ['/g|h', 4],
  ['/i\\j', 5],
  ['/k"l', 6],
  ['/ ', 7],
  ['/m~0n', 8],
])('the pointer %j leads to %j', (pointer, value) => {
  expect(isJsonPointer(pointer)).toBe(true);
  expect(valueAt(DOCUMENT, pointer)).toEqual(value);
});

test.each(['/nothing', '/foo/2', '/foo/01', '/foo/-', '/foo/length', '/toString', '/foo/0/0'])(
  'the pointer %j leads to nothing',
  (pointer) => {
    expect(valueAt(DOCUMENT, pointer)).toBeUndefined();
  },
);

test.each(['a', 'a/b', '/a~', '/a~2'])('%j is no pointer', (text) => {
  expect(isJsonPointer(text)).toBe(false);
});
