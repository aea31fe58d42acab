import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { linesOf } from '../../../src/console/live/log-lines.ts';
import { TerminalText } from '../../../src/console/live/terminal-text.ts';

const ESC = '\u001b';

function render(...chunks: (string | Buffer)[]) {
  const text = new TerminalText();
  return chunks.flatMap((chunk) => text.add(Buffer.from(chunk)));
}

test.each([
  [
    'the 8 colours',
    `${ESC}[31mred${ESC}[0m plain`,
    [
      ['red', 'fg1'],
      [' plain', ''],
    ],
  ],
  ['the 8 bright colours', `${ESC}[92mgreen`, [['green', 'fg10']]],
  ['several renditions at once', `${ESC}[1;4;33mloud`, [['loud', 'bold under fg3']]],
  [
    'renditions that end',
    `${ESC}[1;3ma${ESC}[22mb${ESC}[23mc`,
    [
      ['a', 'bold italic'],
      ['b', 'italic'],
      ['c', ''],
    ],
  ],
  ['a background, whose text has a colour of its own', `${ESC}[31;41mhidden?`, [['hidden?', 'bg1']]],
  ['one of 256 colours', `${ESC}[38;5;196mred`, [['red', 'fg9']]],
  ['a grey', `${ESC}[38;5;240mgrey`, [['grey', 'fg8']]],
  ['a true colour', `${ESC}[38;2;20;20;200mblue`, [['blue', 'fg4']]],
  ['a true colour with colons', `${ESC}[38:2:20:20:200mblue`, [['blue', 'fg4']]],
  ['concealed text, which is shown', `${ESC}[8msecret`, [['secret', '']]],
  ['an unknown rendition, which changes nothing', `${ESC}[31;73mred`, [['red', 'fg1']]],
  ['an empty one, which resets', `${ESC}[31m${ESC}[mplain`, [['plain', '']]],
])('colours: %s', (_, text, expected) => {
  expect(render(text)).toEqual([expected.map(([each, style]) => ({ text: each, style }))]);
});

test.each([
  ['movements of the cursor', `a${ESC}[2K${ESC}[1;1Hb`],
  ['the title of a window', `a${ESC}]0;a title\u0007b`],
  ['a control string that ends as ECMA-48 says', `a${ESC}P1$r${ESC}\\b`],
  ['a change of the character set', `a${ESC}(0b`],
])('%s leave no trace', (_, text) => {
  expect(render(text)).toEqual([[{ text: 'ab', style: '' }]]);
});

test('a control string without an end hides nothing', () => {
  expect(render(`${ESC}]0;no end\n`, 'still here')).toEqual([
    [{ text: '\\u001b]0;no end', style: '' }],
    [],
    [{ text: 'still here', style: '' }],
  ]);
});

test('control characters and characters that reorder text are shown', () => {
  expect(render('a\u0000b\u202ec\tx')).toEqual([[{ text: 'a\\u0000b\\u202ec\tx', style: '' }]]);
});

test('a progress bar that returns to the beginning of its line hides nothing', () => {
  expect(render('10%\r20%\r\ndone')).toEqual([
    [{ text: '10%', style: '' }],
    [{ text: '20%', style: '' }],
    [{ text: 'done', style: '' }],
  ]);
});

test('markup is text', () => {
  expect(render('<script>alert(1)</script>')).toEqual([[{ text: '<script>alert(1)</script>', style: '' }]]);
});

/** Every character with its style and the number of its line. */
function characters(chunks: ReturnType<typeof render>[]): string[] {
  let line = 0;
  return chunks.flatMap((chunk) =>
    chunk.flatMap((part, index) => {
      if (index > 0) line += 1;
      return part.flatMap(({ text, style }) => [...text].map((each) => `${line} ${each} ${style}`));
    }),
  );
}

test('wherever a text is cut into chunks, even inside a character, it looks the same', () => {
  const text = Buffer.from(`é${ESC}[1;31mrot €\r\n${ESC}]0;t${ESC}\\x${ESC}[0m\n\nend`);
  const whole = characters([render(text)]);
  for (let cut = 1; cut < text.length; cut++) {
    const reader = new TerminalText();
    const chunks = [reader.add(text.subarray(0, cut)), reader.add(text.subarray(cut))];
    expect(characters(chunks)).toEqual(whole);
  }
});

test('random bytes and escape characters without end become text without control characters', () => {
  const hostile = [
    randomBytes(1_048_576),
    Buffer.from(`${ESC}[`.repeat(524_288)),
    Buffer.alloc(1_048_576, 0x1b),
  ];
  for (const data of hostile) {
    const spans = new TerminalText().add(data).flat();
    for (const { text, style } of spans) {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
      expect(text).not.toMatch(/[\u0000-\u0008\u000a-\u001f\u007f-\u009f]/);
      expect(style).toMatch(/^(?:(?:bold|dim|italic|under|inverse|strike|[fb]g\d\d?) ?)*$/);
    }
  }
});

const piece = (source: string, offset: number, text: string, attempt = 1) => ({
  time: 1000 + offset,
  attempt,
  source,
  offset,
  data: Buffer.from(text),
});
const textsOf = (lines: ReturnType<typeof linesOf>) =>
  lines.map(({ source, spans }) => [source, spans.map(({ text }) => text).join('')]);

test('lines of several outputs stay apart, empty lines stay, and what was cut out is said', () => {
  const chunks = [
    piece('orc', 0, 'Attempt 1 starts.\n'),
    piece('stdout', 18, 'half '),
    piece('stderr', 23, 'warning\n\n'),
    piece('stdout', 32, 'whole\n'),
    piece('stdout', 100, 'later'),
    piece('orc', 0, 'Attempt 2 starts.\n', 2),
  ];
  expect(textsOf(linesOf(chunks, false))).toEqual([
    ['orc', 'Attempt 1 starts.'],
    ['stdout', 'half '],
    ['stderr', 'warning'],
    ['stderr', ''],
    ['stdout', 'whole'],
    ['cut', '62 bytes of output were cut here'],
    ['stdout', 'later'],
    ['orc', 'Attempt 2 starts.'],
  ]);
});

test('of the end of a log it is not said that the beginning was cut out', () => {
  const chunks = [piece('stdout', 900, 'late\n'), piece('stdout', 910, 'later\n')];
  expect(textsOf(linesOf(chunks, true))).toEqual([
    ['stdout', 'late'],
    ['cut', '5 bytes of output were cut here'],
    ['stdout', 'later'],
  ]);
});
