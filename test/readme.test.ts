import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ERRORS } from '../src/core/errors.ts';
import { hasCommand } from './support/machine.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from './support/orc-process.ts';
import { codeBlock } from './support/pages.ts';
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

test('links the source of the page that lists every error with its cause and its cure', () => {
  const [, link = ''] = /## Errors\n[^#]*?\]\(([^)]+)\)/.exec(readme) ?? [];
  const source = readFileSync(new URL(`../${link}`, import.meta.url), 'utf8');
  for (const id of Object.keys(ERRORS)) {
    expect(source).toMatch(
      new RegExp(`^  ${id}: \\{\\n(?:    .*\\n)*?    cause:\\s+\\S.*\\n    cure:\\s+\\S`, 'm'),
    );
  }
});

/** Runs the loop that waits for a run; resolves with its exit code. */
async function waitWith(code: string, slug: string, apiKey: string): Promise<number> {
  const env = { PATH: process.env['PATH'], ORC_URL: api.url, ORC_KEY: apiKey };
  const ready = code
    .replace('triggers/deploy', `triggers/${slug}`)
    // Not every machine has uuidgen.
    .replace('$(uuidgen)', randomUUID());
  try {
    await run('sh', ['-c', ready], { env });
    return 0;
  } catch (error) {
    return (error as { code: number }).code;
  }
}

const loop = codeBlock(readme, ({ code }) => code.includes('Idempotency-Key'));

const testWithCurl = test.runIf(hasCommand('curl'));

testWithCurl('its loop waits for a run and succeeds as it does, with one run', async () => {
  const apiKey = await createAutomation(store, 'waits', { action: script('setTimeout(() => {}, 500)') });
  expect(await waitWith(loop, 'waits', apiKey)).toBe(0);
  expect(await store.runs.list({ automation: 'waits', limit: 10 })).toMatchObject([{ status: 'succeeded' }]);
});

testWithCurl('its loop fails when the run does, and when the key is wrong', async () => {
  const apiKey = await createAutomation(store, 'fails', { action: script('process.exit(3)') });
  expect(await waitWith(loop, 'fails', apiKey)).toBe(1);
  expect(await waitWith(loop, 'fails', 'wrong')).toBe(1);
});
