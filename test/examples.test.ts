import { afterAll, beforeAll, expect, test } from 'vitest';
import { readSite } from '../src/pages/site.ts';
import { type AppliedExamples, applyExamples, type Receiver, startReceiver } from './support/examples.ts';
import { runOrc } from './support/orc.ts';
import { type OrcProcess, startWorkerProcess } from './support/orc-process.ts';
import { codeBlock } from './support/pages.ts';
import { readProjectFile } from './support/repository.ts';
import { openTestStore } from './support/store.ts';
import { openFolder } from './worker/workbench.ts';
import { createRepository, git } from './worker/workspace/repositories.ts';

const store = openTestStore();
const folder = openFolder();
const shop = createRepository(folder('shop'), {
  'package.json': '{"name":"shop","scripts":{"test":"node test.mjs"}}',
  'package-lock.json': '{"name":"shop","lockfileVersion":3,"packages":{"":{"name":"shop"}}}',
  'test.mjs': "import { sum } from './sum.mjs';\nif (sum(1, 2) !== 3) throw new Error('the sum is wrong');\n",
  'sum.mjs': 'export const sum = (a, b) => a - b;\n',
});
let applied: AppliedExamples;
let worker: OrcProcess;
const receivers: Receiver[] = [];

beforeAll(async () => {
  applied = await applyExamples(folder('examples'), store.env, shop.url);
  worker = await startWorkerProcess({ ...store.env, WORKSPACE_DIR: folder('workspaces') });
});

afterAll(async () => {
  for (const receiver of receivers) receiver.stop();
  await worker.stop();
});

const orc = (...args: string[]) => runOrc(args, { env: store.env });

async function receiverOf(slug: keyof AppliedExamples['ports']): Promise<Receiver> {
  const receiver = await startReceiver([process.execPath, 'receiver.mjs'], applied, slug);
  receivers.push(receiver);
  return receiver;
}

test('the script gives a result and an artifact', async () => {
  const { code } = await orc('trigger', 'disk-space', '-d', '{"path":"/","maxPercent":100}', '--wait');
  expect(code).toBe(0);
  const { stdout } = await orc('runs', 'result', '--last', 'disk-space');
  expect(JSON.parse(stdout)).toEqual({ path: '/', usedPercent: expect.any(Number) });
  expect((await orc('runs', 'artifacts', '--last', 'disk-space')).stdout).toContain('statfs.json');
});

test('a payload that its schema refuses is not executed', async () => {
  const { code, stderr } = await orc('trigger', 'disk-space', '-d', '{"path":"relative"}');
  expect([code, stderr]).toEqual([1, expect.stringContaining('/path')]);
});

test('when the script fails, its reason is told and its event is received', async () => {
  const receiver = await receiverOf('disk-space');
  const { code } = await orc('trigger', 'disk-space', '-d', '{"maxPercent":0}', '--wait');
  expect(code).toBe(1);
  expect((await orc('runs', 'list', '--failed')).stdout).toMatch(/\/ is \d+ % full/);
  expect(await receiver.line('run.failed')).toMatch(/"detail":"\/ is \d+ % full, more than 0 %"/);
});

test('the receiver in Node.js verifies a delivery, and its answer is the result', async () => {
  const receiver = await receiverOf('notify');
  const { code } = await orc('trigger', 'notify', '-d', '{"hello":"receiver"}', '--wait');
  expect(code).toBe(0);
  const line = await receiver.line('{"hello":"receiver"}');
  const result = JSON.parse((await orc('runs', 'result', '--last', 'notify')).stdout);
  expect(result).toEqual({ received: line.split(' ')[0] });
  const forged = await fetch(`http://127.0.0.1:${applied.ports.notify}/`, { method: 'POST', body: '{}' });
  expect(forged.status).toBe(401);
});

test("the agent's mended file is pushed once the repository's tests pass", async () => {
  const mended = 'export const sum = (a, b) => a + b;\n';
  const payload = JSON.stringify({ file: 'sum.mjs', text: mended });
  expect(await orc('trigger', 'fix-tests', '-d', payload, '--wait')).toMatchObject({ code: 0 });
  const { branch } = JSON.parse((await orc('runs', 'result', '--last', 'fix-tests')).stdout);
  expect(git(shop.bare, 'show', `${branch}:sum.mjs`)).toBe(mended.trim());
  const prompt = readProjectFile('examples/fix-tests.md').split('\n')[0] ?? '';
  expect((await orc('runs', 'logs', '--last', 'fix-tests')).stdout).toContain(prompt);
});

test('the agent has failed when its work does not pass the tests', async () => {
  const payload = JSON.stringify({ file: 'sum.mjs', text: 'export const sum = 1;\n' });
  expect(await orc('trigger', 'fix-tests', '-d', payload, '--wait')).toMatchObject({ code: 1 });
  expect((await orc('runs', 'show', '--last', 'fix-tests')).stdout).toMatch(/^reason +check_failed$/m);
});

test.each(['verify.mjs', 'verify.py'])('%s is what the page of events shows', (name) => {
  const { markdown = '' } = readSite().pages.find(({ path }) => path === '/docs/events') ?? {};
  expect(readProjectFile(`examples/${name}`)).toBe(codeBlock(markdown, ({ file }) => file === name));
});
