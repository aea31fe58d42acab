import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, expect, test, vi } from 'vitest';
import { createOutput, pairs, tableLines } from '../../src/cli/output.ts';
import { cut, widthOf } from '../../src/cli/text-width.ts';
import { formatAge } from '../../src/core/age.ts';

afterEach(() => {
  vi.unstubAllEnvs();
});

async function styled(isTTY: boolean, noColor: boolean): Promise<string> {
  const stream = Object.assign(new PassThrough(), { isTTY }) as unknown as NodeJS.WriteStream & PassThrough;
  const output = createOutput(stream, stream, noColor);
  output.out(output.style('bold', 'text'));
  stream.end();
  return text(stream);
}

test('only a terminal without NO_COLOR gets escape codes', async () => {
  // Newer versions of Node look at the terminal of the test run, too.
  vi.stubEnv('FORCE_COLOR', '1');
  vi.stubEnv('NO_COLOR', undefined);
  expect(await styled(true, false)).toBe('\u001b[1mtext\u001b[22m');
  expect(await styled(true, true)).toBe('text');
  expect(await styled(false, false)).toBe('text');
});

test('columns are as wide as their widest cell, and no line ends in spaces', () => {
  expect(
    tableLines(['A', 'BB', 'C'])([
      ['long', 'b', ''],
      ['a', 'b', 'c'],
    ]),
  ).toEqual(['A     BB  C', 'long  b', 'a     b   c']);
});

test('rows that come later keep to the columns of those before, and may make them wider', () => {
  const add = tableLines(['A', 'B']);
  expect(add([['aaa', 'b']])).toEqual(['A    B', 'aaa  b']);
  expect(add([['a', 'b']])).toEqual(['a    b']);
  expect(add([['aaaa', 'b']])).toEqual(['aaaa  b']);
});

test('no line is wider than the terminal, and the first column gives last', () => {
  const cells = ['slug-of-sixteen-', 'x'.repeat(300), 'y', `\u001b]0;${'日本語'.repeat(30)}`];
  for (const columns of [100, 80, 40, 33]) {
    const [header = '', row = ''] = tableLines(['A', 'B', 'C', 'D'], columns)([cells]);
    expect([columns, widthOf(row) <= columns && widthOf(header) <= columns]).toEqual([columns, true]);
    expect(row.startsWith('slug-of-sixteen-  x')).toBe(true);
    expect(row).toMatch(/x… {2}y {3,}\S|x… {2}y {2}\S/);
    expect(row.endsWith('…')).toBe(true);
  }
});

test.each([
  ['abc', 3],
  ['日本語', 6],
  ['e\u0301', 1],
  ['👩🚀', 4],
])('the width of %s is %i columns', (text, width) => {
  expect(widthOf(text)).toBe(width);
  expect(cut(text, width)).toBe(text);
  if (width > 1) expect(widthOf(cut(text, width - 1))).toBeLessThan(width);
});

test('a list for programs that comes in parts is the same JSON as in one piece', async () => {
  for (const items of [[], [1], [{ a: [1, 'x\ny'] }, null, []]]) {
    const stream = Object.assign(new PassThrough(), { isTTY: false });
    const list = createOutput(stream, stream, true).openJsonList();
    for (const item of items) list.items([item]);
    list.end();
    stream.end();
    expect(await text(stream)).toBe(`${JSON.stringify(items, null, 2)}\n`);
  }
});

test.each([
  [0, 'now'],
  [59_999, '59 s ago'],
  [180_000, '3 min ago'],
  [7_200_000, '2 h ago'],
  [86_400_000 * 12, '12 d ago'],
  [-5000, 'now'],
])('%i milliseconds ago is %s', (ms, age) => {
  expect(formatAge(new Date(1e12 - ms), 1e12)).toBe(age);
});

test('pairs without a value are left out', () => {
  expect(
    pairs([
      ['a', '1'],
      ['gone', undefined],
      ['bb', '2'],
    ]),
  ).toEqual(['a   1', 'bb  2']);
});
