import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, expect, test, vi } from 'vitest';
import { createOutput, pairs, table } from '../../src/cli/output.ts';

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
    table(
      ['A', 'BB', 'C'],
      [
        ['long', 'b', ''],
        ['a', 'b', 'c'],
      ],
    ),
  ).toEqual(['A     BB  C', 'long  b', 'a     b   c']);
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
