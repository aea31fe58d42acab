import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readSite, withOrigin } from '../src/pages/site.ts';
import { untilHealthy } from './support/http.ts';
import { hasCommand } from './support/machine.ts';
import {
  type Finished,
  type OrcProcess,
  startApiProcess,
  startWorkerProcess,
} from './support/orc-process.ts';
import { type CodeBlock, codeBlock, codeBlocksIn } from './support/pages.ts';
import { createAutomation, openTestStore, script } from './support/store.ts';

const TSC = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url));
const TYPES = fileURLToPath(new URL('../node_modules/@types', import.meta.url));

const store = openTestStore();
let api: OrcProcess & { url: string };
let worker: OrcProcess;
let folder: string;
/** The key of the automation `works`, whose runs succeed, and of `breaks`, whose runs fail. */
let keys: { works: string; breaks: string };

beforeAll(async () => {
  api = await startApiProcess(store.env);
  worker = await startWorkerProcess(store.env);
  await untilHealthy(api.url);
  folder = await mkdtemp(join(tmpdir(), 'orc-recipes-'));
  // So long that whoever does not wait for it is seen.
  const work = script('setTimeout(() => process.stdin.pipe(process.stdout), 300)');
  keys = {
    works: await createAutomation(store, 'works', { action: work }),
    breaks: await createAutomation(store, 'breaks', { action: script('process.exit(3)') }),
  };
  // A shell that has nothing to do need not wait for long.
  await writeFile(join(folder, 'sleep'), '#!/bin/sh\nPATH=$ALL_PATH exec sleep 0.2\n', { mode: 0o755 });
  await writeFile(join(folder, 'orc-run.sh'), fillIn(fileBlock('orc-run.sh'), 'works'));
});

afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await Promise.all([api.stop(), worker.stop()]);
});

const pages = readSite().pages;
const recipes = pages.find(({ path }) => path === '/docs/recipes')?.markdown ?? '';

function fileBlock(name: string): string {
  return codeBlock(recipes, ({ file }) => file === name);
}

function fillIn(code: string, slug: string): string {
  // Not every machine has uuidgen.
  return withOrigin(code, api.url).replaceAll('YOUR-SLUG', slug).replaceAll('$(uuidgen)', randomUUID());
}

/** Runs a program in the folder of the recipes, with nothing but what they tell their readers to set. */
function run(command: string, args: string[], env: NodeJS.ProcessEnv): Promise<Finished> {
  const { PATH, HOME } = process.env;
  return new Promise((resolve) => {
    const options = { cwd: folder, env: { PATH: `${folder}:${PATH}`, ALL_PATH: PATH, HOME, ...env } };
    const child = execFile(command, args, options, (_, stdout, stderr) =>
      resolve({ code: child.exitCode, stdout, stderr }),
    );
    child.stdin?.end();
  });
}

function shell(code: string, slug: keyof typeof keys, env: NodeJS.ProcessEnv = {}): Promise<Finished> {
  return run('sh', ['-c', fillIn(code, slug)], { ORC_KEY: keys[slug], ...env });
}

/** Runs what waits for a run, and holds its exit code against how the run ended; returns the run's payload. */
async function expectWaiting(slug: keyof typeof keys, attempt: () => Promise<Finished>): Promise<string> {
  const before = await store.runs.list({ automation: slug, limit: 100 });
  const { code, stdout, stderr } = await attempt();
  const after = await store.runs.list({ automation: slug, limit: 100 });
  expect(after).toHaveLength(before.length + 1);
  const [latest] = after;
  const isSuccess = slug === 'works';
  expect(latest?.status).toBe(isSuccess ? 'succeeded' : 'failed');
  expect([stderr, code]).toEqual([isSuccess ? '' : expect.stringContaining('failed'), isSuccess ? 0 : 1]);
  expect(`${stdout}${stderr}`).toContain(latest?.id);
  if (!isSuccess) return '';
  const { entries } = await store.runLogs.read(latest?.id ?? '');
  return entries.map(({ source, data }) => (source === 'stdout' ? String(data) : '')).join('');
}

describe.runIf(hasCommand('curl'))('with curl', () => {
  const commands = pages.flatMap(({ path, markdown }) =>
    codeBlocksIn(markdown)
      .filter(({ language, file, code }) => language === 'sh' && !file && code.startsWith('curl '))
      .map(({ code }, index) => [path, index + 1, code] as const),
  );

  test('there are commands on three pages', () => {
    expect(new Set(commands.map(([path]) => path))).toEqual(new Set(['/', '/docs', '/docs/recipes']));
  });

  test.each(commands)('on %s, command %i works as it stands there', async (_, __, code) => {
    const { code: exitCode, stdout } = await shell(code, 'works');
    expect(exitCode).toBe(0);
    const answer = JSON.parse(stdout);
    expect(answer.status).toBe(code.includes('/orc/health') ? 'ok' : 'queued');
  });

  const callScript = codeBlock(recipes, ({ language, code }) => language === 'sh' && code.startsWith('sh '));

  test('orc-run.sh waits for the run, and fails when it does', async () => {
    expect(await expectWaiting('works', () => shell(callScript, 'works'))).toBe('{"ref":"main"}');
    await expectWaiting('breaks', () => shell(callScript, 'breaks'));
  });

  test('orc-run.sh with the same key waits for the same run', async () => {
    const again = `sh orc-run.sh YOUR-SLUG '{}' fixed`;
    const first = await shell(again, 'works');
    expect((await shell(again, 'works')).stdout).toBe(first.stdout);
  });

  test('orc-run.sh shows the answer and fails when the key is wrong, and when nobody listens', async () => {
    const wrong = await shell(callScript, 'works', { ORC_KEY: 'wrong' });
    expect(wrong).toMatchObject({ code: 1, stderr: expect.stringContaining('invalid_api_key') });
    const nobody = await shell(callScript, 'works', { ORC_URL: 'http://127.0.0.1:1' });
    expect(nobody.code).toBe(1);
  });

  /** The script in a CI system's file, which begins after a line with this end and is indented. */
  function scriptIn(file: string, beginning: string): string {
    const [, after = ''] = fileBlock(file).split(beginning);
    const [, indentation = ''] = /^\n( +)/.exec(after) ?? [];
    const lines = after.slice(1).split('\n');
    const end = lines.findIndex((line) => !line.startsWith(indentation));
    return lines
      .slice(0, end)
      .map((line) => line.slice(indentation.length))
      .join('\n');
  }

  test.each([
    [
      '.github/workflows/deploy.yml',
      'run: |',
      { GITHUB_SHA: 'c0ffee', GITHUB_RUN_ID: '1', GITHUB_RUN_ATTEMPT: '1' },
    ],
    ['.gitlab-ci.yml', '- |', { CI_COMMIT_SHA: 'c0ffee', CI_JOB_ID: '1' }],
    ['Jenkinsfile', "sh '''", { GIT_COMMIT: 'c0ffee', BUILD_TAG: 'jenkins-deploy-1' }],
  ])(
    'the step in %s waits for its run, and once it has ended starts no other',
    async (file, beginning, env) => {
      // In Groovy's strings, two backslashes are one.
      const step = scriptIn(file, beginning).replaceAll('\\\\', '\\');
      expect(step).toContain('orc-run.sh');
      expect(await expectWaiting('works', () => shell(step, 'works', env))).toBe('{"commit":"c0ffee"}');
      const runs = await store.runs.list({ automation: 'works', limit: 100 });
      expect((await shell(step, 'works', env)).code).toBe(0);
      expect(await store.runs.list({ automation: 'works', limit: 100 })).toHaveLength(runs.length);
    },
  );
});

/** Runs a program that prints the ended run. */
async function expectProgram(command: string, args: string[]): Promise<void> {
  const program = (slug: keyof typeof keys) => run(command, args, { ORC_KEY: keys[slug], ORC_URL: api.url });
  const { code, stdout, stderr } = await program('works');
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/succeeded/);
  const runs = await store.runs.list({ automation: 'works', limit: 1 });
  expect(runs).toMatchObject([
    { id: expect.stringMatching(stdout.match(/run_[\w-]+/)?.[0] ?? 'none'), status: 'succeeded' },
  ]);
  const refused = await program('breaks');
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain('invalid_api_key');
}

const python = hasCommand('python3') ? 'python3' : undefined;
if (!python) console.warn('python3 is not on the PATH: the recipe in Python is not tried.');

test.runIf(python)('the program in Python waits for the run, and fails when it is refused', async () => {
  await writeFile(join(folder, 'run.py'), fillIn(fileBlock('run.py'), 'works'));
  await expectProgram(python ?? '', ['run.py']);
});

test('the program in TypeScript is correct under strict rules, waits for the run, and fails when it is refused', async () => {
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  await writeFile(join(folder, 'run.ts'), fillIn(fileBlock('run.ts'), 'works'));
  const options = [
    '--strict',
    '--target',
    'es2022',
    '--module',
    'nodenext',
    '--types',
    'node',
    '--typeRoots',
    TYPES,
  ];
  const compiled = await run(process.execPath, [TSC, ...options, 'run.ts'], {});
  expect([compiled.code, compiled.stdout]).toEqual([0, '']);
  await expectProgram(process.execPath, ['run.js']);
});

test('every block of code is of a language that is tried, or no code', () => {
  const isTried = ({ language, file, code }: CodeBlock) => {
    const isCommand = language === 'sh' && /^(curl|sh|check_http) /.test(code);
    return isCommand || file !== undefined || ['json', 'http', 'text'].includes(language);
  };
  const blocks = pages.flatMap(({ markdown }) => codeBlocksIn(markdown));
  expect(blocks.length).toBeGreaterThan(20);
  expect(blocks.filter((block) => !isTried(block))).toEqual([]);
});
