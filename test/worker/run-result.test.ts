import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MAX_RESULT_BYTES } from '../../src/core/run.ts';
import { maskResult, parseResult, readResultFile } from '../../src/worker/run-result.ts';
import { SecretMask } from '../../src/worker/secret-mask.ts';
import { openFolder } from './workbench.ts';

const folder = openFolder();

function written(name: string, data: string | Buffer): string {
  const path = folder(name);
  writeFileSync(path, data);
  return path;
}

/** An object of this many bytes. */
function objectOf(bytes: number): string {
  return `{"a":"${'x'.repeat(bytes - 8)}"}`;
}

test('a JSON object in the file is the result, byte for byte', async () => {
  const text = '\n{ "n": 12345678901234567890, "n": 1.0, "__proto__": {"ü": "\\u00fc"} }\n';
  expect(await readResultFile(written('exact', text))).toEqual({ text });
});

test('an object of a hundred levels is a result', () => {
  const text = `{"a":${'['.repeat(99)}${']'.repeat(99)}}`;
  expect(parseResult('The file', Buffer.from(text))).toEqual({ text });
});

test('without a file there is no result, and nothing is wrong', async () => {
  expect(await readResultFile(folder('none'))).toBeUndefined();
});

test('an object of exactly the limit is a result, a larger one is not', async () => {
  const largest = objectOf(MAX_RESULT_BYTES);
  expect(await readResultFile(written('largest', largest))).toEqual({ text: largest });
  expect(await readResultFile(written('larger', objectOf(MAX_RESULT_BYTES + 1)))).toEqual({
    problem: 'The file $ORC_RESULT_FILE is larger than 65536 bytes, so it is not kept as the result.',
  });
});

test.each<[what: string, data: string | Buffer, problem: string]>([
  ['an empty text', '', 'is not JSON in UTF-8'],
  ['a broken text', '{"a":', 'is not JSON in UTF-8'],
  ['two objects', '{}\n{}', 'is not JSON in UTF-8'],
  ['a byte order mark', '\ufeff{}', 'is not JSON in UTF-8'],
  ['UTF-16', Buffer.from('{}', 'utf16le'), 'is not JSON in UTF-8'],
  ['Latin-1', Buffer.from('{"a":"ü"}', 'latin1'), 'is not JSON in UTF-8'],
  ['a list', '[1]', 'is not a JSON object'],
  ['a text', '"done"', 'is not a JSON object'],
  ['null', 'null', 'is not a JSON object'],
  ['a bomb', `{"a":${'['.repeat(30_000)}${']'.repeat(30_000)}}`, 'is nested deeper than 100 levels'],
])('%s is no result, and the problem says so', (_, data, problem) => {
  expect(parseResult('The file', Buffer.from(data))).toEqual({
    problem: `The file ${problem}, so it is not kept as the result.`,
  });
});

test('a symbolic link, a pipe and a folder are not read', async () => {
  const link = folder('link');
  symlinkSync(written('target', '{"secret":"of somebody else"}'), link);
  execFileSync('mkfifo', [folder('pipe')]);
  mkdirSync(folder('folder'));
  const problems = await Promise.all(['link', 'pipe', 'folder'].map((name) => readResultFile(folder(name))));
  expect(problems).toEqual([
    { problem: 'The file $ORC_RESULT_FILE is a symbolic link, so it is not read.' },
    { problem: 'The file $ORC_RESULT_FILE is not a regular file, so it is not read.' },
    { problem: 'The file $ORC_RESULT_FILE is not a regular file, so it is not read.' },
  ]);
});

test('secrets are masked in names and values, also when escaped, and the rest stays byte for byte', () => {
  const mask = new SecretMask(['p"ss/wörd', '1234567890', 'token-of-eight']);
  const text =
    '{ "a": "x p\\"ss\\/w\\u00f6rd y", "n": [-1234567890.5, 12345678901234567890123],\n "token-of-eight": 1.0, "b": "\\u0041" }';
  expect(maskResult(text, mask)).toEqual({
    text: '{ "a": "x *** y", "n": ["-***.5", "******123"],\n "***": 1.0, "b": "\\u0041" }',
  });
});

test('a result with a secret that spans several values is not kept', () => {
  const mask = new SecretMask(['"user":"me","password":"x"']);
  expect(maskResult('{"user":"me","password":"x"}', mask)).toEqual({
    problem: 'The result contains a secret that spans several of its values, so it is not kept.',
  });
});
