import { execFile, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readSite, withOrigin } from '../src/pages/site.ts';
import { receiverAddresses } from '../src/worker/actions/receiver-addresses.ts';
import { postSigned } from '../src/worker/actions/signed-post.ts';
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

const events = pages.find(({ path }) => path === '/docs/events')?.markdown ?? '';

function fileBlock(name: string): string {
  return codeBlock(`${recipes}\n${events}`, ({ file }) => file === name);
}

function fillIn(code: string, slug: string): string {
  return withOrigin(code, api.url).replaceAll('YOUR-SLUG', slug);
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
  return run('/bin/sh', ['-c', fillIn(code, slug)], { ORC_KEY: keys[slug], RUN_KEY: randomUUID(), ...env });
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

/** CI systems: their file, the line before the script, and the variables that they set. */
const CI_STEPS = [
  [
    '.github/workflows/deploy.yml',
    'run: |',
    { GITHUB_SHA: 'c0ffee', GITHUB_RUN_ID: '1', GITHUB_RUN_ATTEMPT: '1' },
  ],
  ['.gitlab-ci.yml', '- |', { CI_COMMIT_SHA: 'c0ffee', CI_JOB_ID: '1' }],
  ['Jenkinsfile', "sh '''", { GIT_COMMIT: 'c0ffee', BUILD_TAG: 'jenkins-deploy-1' }],
] as const;

const python = hasCommand('python3') ? 'python3' : undefined;
if (!python) console.warn('python3 is not on the PATH: the recipe in Python is not tried.');

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

  const readResult = (key: string, env: NodeJS.ProcessEnv = {}) =>
    run('/bin/sh', ['-c', fillIn(fileBlock('orc-result.sh'), ''), 'sh', 'tells', '{}', key], {
      ORC_KEY: tellsKey,
      ...env,
    });

  /** An automation whose result looks like an answer, or like anything but JSON. */
  const RESULT = {
    status: 'failed',
    outcome: { status: '"status":"queued"', result: null },
    'a "result": {': ['C:\\new\\', '\\"}', '{[', 'ü☃', '', []],
    nothing: {},
    long: 'x'.repeat(50_000),
  };
  let tellsKey: string;
  beforeAll(async () => {
    const text = JSON.stringify(JSON.stringify(RESULT, null, 2));
    const source = `require('fs').writeFileSync(process.env.ORC_RESULT_FILE, ${text})`;
    tellsKey = await createAutomation(store, 'tells', { action: script(source) });
  });

  test('orc-result.sh prints the result, also one that looks like an answer', async () => {
    const first = await readResult('one');
    expect([first.code, first.stderr]).toEqual([0, '']);
    expect(JSON.parse(first.stdout)).toEqual(RESULT);
    expect(await readResult('one')).toEqual(first);
    expect(await readResult('one', { ORC_KEY: 'wrong' })).toMatchObject({ code: 1, stdout: '' });
    expect((await readResult('')).code).not.toBe(0);
    expect(await store.runs.list({ automation: 'tells', limit: 10 })).toHaveLength(1);
  });

  /** What the recipes may find besides curl: the commands of a slim image, and those that are missing in turn. */
  const COMMANDS = ['cat', 'grep', 'awk', 'node', 'python3', 'uuidgen', 'jq'];
  const NEW_OPTION = '--retry-all-errors';

  /** A PATH with a shell, the short `sleep`, curl and those of these commands that this machine has. */
  async function pathWith(found: string[], missingOption?: string): Promise<string> {
    const path = await mkdtemp(join(folder, 'path-'));
    await symlink('/bin/sh', join(path, 'sh'));
    for (const name of ['sleep', ...found.filter(hasCommand)]) {
      const program = `#!/bin/sh\nPATH=$ALL_PATH exec ${name} ${name === 'sleep' ? '0.2' : '"$@"'}\n`;
      await writeFile(join(path, name), program, { mode: 0o755 });
    }
    const curl = `#!/bin/sh
case " $* " in *" ${missingOption} "*) echo "curl: option $*: is unknown" >&2; exit 2 ;; esac
PATH=$ALL_PATH exec curl "$@"
`;
    await writeFile(join(path, 'curl'), curl, { mode: 0o755 });
    return path;
  }

  const countRuns = async () => (await store.runs.list({ automation: 'works', limit: 1000 })).length;

  test('every recipe in a shell works without uuidgen, jq and the new option of curl', async () => {
    const found = COMMANDS.filter((command) => !['uuidgen', 'jq'].includes(command));
    const PATH = await pathWith(found, NEW_OPTION);
    for (const [, , code] of commands) expect((await shell(code, 'works', { PATH })).code).toBe(0);
    await expectWaiting('works', () => shell(callScript, 'works', { PATH }));
    const result = await readResult('without', { PATH });
    expect([result.code, result.stderr]).toEqual([0, '']);
    expect(JSON.parse(result.stdout)).toEqual(RESULT);
    for (const [file, beginning, env] of CI_STEPS) {
      const own = Object.entries(env).map(([name, value]) => [name, `${value}-without`]);
      const step = scriptIn(file, beginning);
      await expectWaiting('works', () => shell(step, 'works', { ...Object.fromEntries(own), PATH }));
    }
  });

  test('nothing is started without an idempotency key: curl would drop the empty header', async () => {
    const before = await countRuns();
    const withoutKey = `/bin/sh orc-run.sh YOUR-SLUG '{"ref":"main"}'`;
    const refused = await shell(withoutKey, 'works', { PATH: await pathWith([]) });
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('give a KEY');
    const [, , plain = ''] = commands.find(([path]) => path === '/docs/recipes') ?? [];
    expect(plain).toContain('RUN_KEY');
    for (const RUN_KEY of [undefined, '']) {
      expect((await shell(plain, 'works', { RUN_KEY })).stderr).toContain('must be a new UUID');
    }
    for (const [file, beginning] of CI_STEPS) {
      const step = scriptIn(file, beginning);
      expect((await shell(step, 'works')).code).not.toBe(0);
    }
    expect(await countRuns()).toBe(before);
  });

  /**
   * The script in a CI system's file, which begins after a line with this end and is indented. Two backslashes are one, as in
   * Groovy's strings.
   */
  function scriptIn(file: string, beginning: string): string {
    const [, after = ''] = fileBlock(file).split(beginning);
    const [, indentation = ''] = /^\n( +)/.exec(after) ?? [];
    const lines = after.slice(1).split('\n');
    const end = lines.findIndex((line) => !line.startsWith(indentation));
    return lines
      .slice(0, end)
      .map((line) => line.slice(indentation.length))
      .join('\n')
      .replaceAll('\\\\', '\\');
  }

  test.each(CI_STEPS)(
    'the step in %s waits for its run, and once it has ended starts no other',
    async (file, beginning, env) => {
      const step = scriptIn(file, beginning);
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

test.runIf(python)('the program in Python waits for the run, and fails when it is refused', async () => {
  await writeFile(join(folder, 'run.py'), fillIn(fileBlock('run.py'), 'works'));
  await expectProgram(python ?? '', ['run.py']);
});

test('the program in TypeScript is correct under strict rules, waits for the run, and fails when it is refused', async () => {
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  await writeFile(join(folder, 'run.ts'), fillIn(fileBlock('run.ts'), 'works'));
  const language = ['--strict', '--target', 'es2022', '--module', 'nodenext'];
  const types = ['--types', 'node', '--typeRoots', TYPES];
  const compiled = await run(process.execPath, [TSC, ...language, ...types, 'run.ts'], {});
  expect([compiled.code, compiled.stdout]).toEqual([0, '']);
  await expectProgram(process.execPath, ['run.js']);
});

/** Sends what a worker sends. */
async function sendSigned(url: string, secrets: string[], body: string): Promise<number> {
  const signal = AbortSignal.timeout(20_000);
  const post = { url, id: 'evt_1', body: Buffer.from(body), secrets, version: '1', signal };
  const response = await postSigned(post, receiverAddresses());
  response.resume();
  return response.statusCode ?? 0;
}

const newSecret = () => `whsec_${randomBytes(32).toString('base64')}`;

/** A request as the library signs it, with two signatures of which the second one fits. */
function signedRequest(secret: string, body: string) {
  const timestamp = new Date();
  const signatures = [newSecret(), secret].map((each) => new Webhook(each).sign('evt_1', timestamp, body));
  return {
    'webhook-id': 'evt_1',
    'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
    'webhook-signature': signatures.join(' '),
  };
}

const SIGNED_BODY = '{"type":"run.failed","data":{"text":"ü"}}';

/** What each verifier has to say to these requests: the type of the event, or why it is refused. */
function signedRequests(secret: string) {
  const headers = signedRequest(secret, SIGNED_BODY);
  const old = { ...headers, 'webhook-timestamp': String(Number(headers['webhook-timestamp']) - 400) };
  return [
    { headers, body: SIGNED_BODY, expected: 'run.failed' },
    { headers, body: SIGNED_BODY.replace('failed', 'forged'), expected: 'wrong signature' },
    { headers: old, body: SIGNED_BODY, expected: 'too old or too new' },
  ];
}

test('the verifier in Node takes what is signed, with either secret, and nothing else', async () => {
  await writeFile(join(folder, 'verify.mjs'), fileBlock('verify.mjs'));
  const { verify } = await import(join(folder, 'verify.mjs'));
  const secret = newSecret();
  for (const { headers, body, expected } of signedRequests(secret)) {
    const verified = () => verify(body, headers, secret);
    if (expected === 'run.failed') expect(verified()).toMatchObject({ type: expected });
    else expect(verified).toThrow(expected);
  }
});

test('the receiver of events passes failures to Slack and statuses to GitHub, and refuses forged events', async () => {
  const received: { url: string | undefined; body: unknown }[] = [];
  const elsewhere = createServer(async (request, response) => {
    received.push({ url: request.url, body: JSON.parse(await text(request)) });
    response.writeHead(received.length > 2 ? 500 : 201).end();
  }).listen(0, '127.0.0.1');
  await once(elsewhere, 'listening');
  const target = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
  await writeFile(join(folder, 'verify.mjs'), fileBlock('verify.mjs'));
  await writeFile(join(folder, 'events.mjs'), fileBlock('events.mjs'));
  const secret = newSecret();
  const env = {
    ORC_SECRET: secret,
    SLACK_URL: `${target}/slack`,
    GITHUB_TOKEN: 't',
    GITHUB_API: target,
    PORT: '0',
  };
  const child = spawn(process.execPath, ['events.mjs'], { cwd: folder, env });
  try {
    const [line] = await once(child.stdout, 'data');
    const url = `http://127.0.0.1:${/\d+/.exec(String(line))}/`;
    const commit = 'c0ffee'.padEnd(40, '0');
    const event = JSON.stringify({
      data: {
        run: { runId: 'run_1', status: 'failed' },
        automation: { slug: 'deploy' },
        outcome: { message: 'The command exited with code 1.', detail: 'no space' },
        result: { repository: 'octo/app', commit },
      },
    });
    expect(await sendSigned(url, [newSecret()], event)).toBe(401);
    expect(await sendSigned(url, [newSecret(), secret], event)).toBe(204);
    expect(received).toEqual([
      { url: '/slack', body: { text: 'deploy failed: The command exited with code 1. no space (run_1)' } },
      {
        url: `/repos/octo/app/statuses/${commit}`,
        body: {
          state: 'failure',
          context: 'orc/deploy',
          description: 'The command exited with code 1. no space',
        },
      },
    ]);
    expect(await sendSigned(url, [secret], event)).toBe(502);
  } finally {
    child.kill();
    elsewhere.close();
    elsewhere.closeAllConnections();
  }
});

test.runIf(python)(
  'the verifier in Python takes what is signed, with either secret, and nothing else',
  async () => {
    await writeFile(join(folder, 'verify.py'), fileBlock('verify.py'));
    const secret = newSecret();
    for (const { headers, body, expected } of signedRequests(secret)) {
      const program = `import json, sys; from verify import verify; print(verify(sys.argv[1].encode(), json.loads(sys.argv[2]), sys.argv[3])["type"])`;
      const { stdout, stderr } = await run(
        python ?? '',
        ['-c', program, body, JSON.stringify(headers), secret],
        {
          PYTHONUTF8: '1',
          PYTHONDONTWRITEBYTECODE: '1',
        },
      );
      expect(`${stdout}${stderr}`).toContain(expected);
      expect(stdout.trim()).toBe(expected === 'run.failed' ? expected : '');
    }
  },
);

test('every block of code is of a language that is tried, or no code', () => {
  const isTried = ({ language, file, code }: CodeBlock) => {
    const isCommand = language === 'sh' && /^(curl|sh|check_http|orc) /.test(code);
    return isCommand || file !== undefined || ['json', 'http', 'text'].includes(language);
  };
  const blocks = pages.flatMap(({ markdown }) => codeBlocksIn(markdown));
  expect(blocks.length).toBeGreaterThan(20);
  expect(blocks.filter((block) => !isTried(block))).toEqual([]);
});
