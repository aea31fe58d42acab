import { execFile } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import { delimiter } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readSite } from '../src/pages/site.ts';
import { environment, ORC, type OrcProcess, startWorkerProcess } from './support/orc-process.ts';
import { codeBlocksIn } from './support/pages.ts';
import { ROOT, readProjectFile } from './support/repository.ts';
import { openTestStore } from './support/store.ts';
import { openFolder } from './worker/workbench.ts';

const readme = readProjectFile('README.md');
const store = openTestStore();
const folder = openFolder();
let worker: OrcProcess;

beforeAll(async () => {
  worker = await startWorkerProcess(store.env);
  // As in a checkout, where npx runs the checkout's own command.
  const npx = `#!/bin/sh\nshift\nexec '${process.execPath}' '${ORC}' "$@"\n`;
  writeFileSync(folder('npx'), npx, { mode: 0o755 });
  writeFileSync(folder('orc'), npx.replace('shift\n', ''), { mode: 0o755 });
});

afterAll(() => worker.stop());

async function shell(code: string): Promise<string> {
  const PATH = [folder('.'), process.env['PATH']].join(delimiter);
  const env = { ...environment(store.env), PATH };
  const { stdout } = await promisify(execFile)('sh', ['-e', '-c', code], { cwd: folder('.'), env });
  return stdout;
}

test.each(
  readSite()
    .pages.flatMap(({ markdown }) => codeBlocksIn(markdown))
    .filter(({ language, code }) => language === 'sh' && code.startsWith('orc '))
    .flatMap(({ code }) => code.trim().split('\n')),
)('works as the pages for operators say: %s', async (line) => {
  // The tests' Redis keeps nothing on disk, which the doctor calls a problem.
  expect(await shell(line === 'orc doctor' ? `${line} || [ $? = 1 ]` : line)).toMatch(/\S/);
});

test('has at most 150 lines', () => {
  expect(readme.trimEnd().split('\n').length).toBeLessThanOrEqual(150);
});

test('its commands create automations, start a run and show what became of it', async () => {
  const [create = '', agent = '', use = '', ...others] = codeBlocksIn(readme)
    .map(({ code }) => code)
    .filter((code) => code.includes('npx orc '));
  expect(others).toEqual([]);
  await shell(create);
  cpSync(`${ROOT}examples`, folder('examples'), { recursive: true });
  expect(await shell(agent)).toContain('check 1 passed, exit code 0');
  const created = [...create.matchAll(/automations create (\S+)/g)].map(([, slug]) => slug);
  const slugs = (await store.automations.list()).map(({ slug }) => slug);
  expect(created.length).toBeGreaterThan(2);
  expect(slugs).toEqual(expect.arrayContaining(created));
  expect(await shell(use)).toContain('{"version":"1.4.2"}');
  const shown = await shell('npx orc runs show --last build');
  const [, session = ''] = /^\$ orc runs show --last build\n([^`]*)```/m.exec(readme) ?? [];
  const words = (line: string) => line.split(/\s+/).join(' ');
  for (const line of session.trim().split('\n')) expect(shown.split('\n').map(words)).toContain(words(line));
});
