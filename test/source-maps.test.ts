import { SourceMap } from 'node:module';
import { expect, test } from 'vitest';
import { readProjectFile } from './support/repository.ts';

test.each([
  ['dist/chunks/start-api.js', 'function startApi(', 'src/api/start-api.ts'],
  ['dist/chunks/start-worker.js', 'function startWorker(', 'src/worker/start-worker.ts'],
])('the source map of %s leads to the line that was written', (file, text, source) => {
  const [line, column] = placeOf(text, readProjectFile(file));
  const map = new SourceMap(JSON.parse(readProjectFile(`${file}.map`)));
  const entry = map.findEntry(line, column);
  expect(entry).toHaveProperty('originalSource', `../../${source}`);
  const [originalLine] = placeOf(text, readProjectFile(source));
  expect(entry).toHaveProperty('originalLine', originalLine);
});

/** Line and column of a text, both counted from 0, as source maps do. */
function placeOf(text: string, content: string): [line: number, column: number] {
  const lines = content.split('\n');
  const line = lines.findIndex((each) => each.includes(text));
  return [line, lines[line]?.indexOf(text) ?? -1];
}
