import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ERRORS } from '../src/core/errors.ts';
import { homePage } from '../src/pages/home.ts';
import { hasCommand } from './support/machine.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from './support/orc-process.ts';
import { createAutomation, openTestStore, script } from './support/store.ts';

const run = promisify(execFile);
const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
const store = openTestStore();
let api: OrcProcess & { url: string };
let worker: OrcProcess;

beforeAll(async () => {
  api = await startApiProcess(store.env);
  worker = await startWorkerProcess(store.env);
});

afterAll(async () => {
  await Promise.all([api.stop(), worker.stop()]);
});

test('lists every error with its status, its meaning and its cure, and no other', () => {
  const rows = readme.split('\n').filter((line) => /^\| `[a-z_]+` \| \d{3} \|/.test(line));
  const expected = Object.entries(ERRORS).map(
    ([id, { statusCode, message, hint }]) => `| \`${id}\` | ${statusCode} | ${message} | ${hint} |`,
  );
  expect(rows).toEqual(expected);
});

/** The code block of a Markdown text that contains some words. */
function codeBlock(markdown: string, words: string): string {
  const blocks = [...markdown.matchAll(/```sh\n(.*?)```/gs)].map(([, code]) => code ?? '');
  return blocks.find((block) => block.includes(words)) ?? '';
}

/** Runs the loop that waits for a run; resolves with its exit code. */
async function waitWith(code: string, slug: string, apiKey: string): Promise<number> {
  const env = { PATH: process.env['PATH'], ORC_URL: api.url, ORC_KEY: apiKey };
  const ready = code
    .replace('triggers/deploy', `triggers/${slug}`)
    .replace('triggers/YOUR-SLUG', `triggers/${slug}`)
    // Not every machine has uuidgen.
    .replace('$(uuidgen)', randomUUID());
  try {
    await run('sh', ['-c', ready], { env });
    return 0;
  } catch (error) {
    return (error as { code: number }).code;
  }
}

const loops = [
  ['README', codeBlock(readme, 'Idempotency-Key')],
  ['page', codeBlock(homePage.markdown('$ORC_URL'), 'Idempotency-Key')],
] as const;

const testWithCurl = test.runIf(hasCommand('curl'));

testWithCurl.each(loops)(
  "the %s's loop waits for a run and succeeds as it does, with one run",
  async (name, code) => {
    const slug = `waits-${name.toLowerCase()}`;
    const apiKey = await createAutomation(store, slug, { action: script('setTimeout(() => {}, 500)') });
    expect(await waitWith(code, slug, apiKey)).toBe(0);
    expect(await store.runs.list({ automation: slug, limit: 10 })).toMatchObject([{ status: 'succeeded' }]);
  },
);

testWithCurl.each(loops)(
  "the %s's loop fails when the run does, and when the key is wrong",
  async (name, code) => {
    const slug = `fails-${name.toLowerCase()}`;
    const apiKey = await createAutomation(store, slug, { action: script('process.exit(3)') });
    expect(await waitWith(code, slug, apiKey)).toBe(1);
    expect(await waitWith(code, slug, 'wrong')).toBe(1);
  },
);
