import { writeFileSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readRun } from '../support/app.ts';
import { runOrc } from '../support/orc.ts';
import { type OrcProcess, startWorkerProcess } from '../support/orc-process.ts';
import { command, createAutomation, openTestStore, script } from '../support/store.ts';
import { openFolder } from '../worker/workbench.ts';

const store = openTestStore();
/** An installation without a worker: its runs stay queued. */
const idle = openTestStore();
const folder = openFolder();

let worker: OrcProcess;
beforeAll(async () => {
  worker = await startWorkerProcess({ ...store.env, SHUTDOWN_GRACE_MS: '500' });
});
afterAll(async () => {
  await worker.stop();
});

const orc = (...args: string[]) => runOrc(['trigger', ...args], { env: store.env });
const orcIdle = (args: string[], options: { stdin?: string; env?: NodeJS.ProcessEnv } = {}) =>
  runOrc(['trigger', ...args], {
    cwd: folder('.'),
    ...options,
    env: { ...idle.env, ...options.env },
  });

test.each([
  ['an argument', '{"big": 12345678901234567890, "__proto__":{}}', (payload: string) => payload],
  ['a file', ' {"z":1,"a":"\\u00fc ü"}\n', () => '@payload.json'],
  ['standard input', '{"a":1 , "a":2}', () => '-'],
  ['nothing', '{}', () => undefined],
])('the payload from %s reaches the run byte for byte', async (name, payload, argumentOf) => {
  const slug = `from-${name.replace(' ', '-')}`;
  await createAutomation(idle, slug);
  writeFileSync(folder('payload.json'), payload);
  const data = argumentOf(payload);
  const args = [slug, ...(data === undefined ? [] : ['-d', data])];
  const { code, stdout, stderr } = await orcIdle(args, { stdin: payload });
  expect([code, stderr]).toEqual([0, '']);
  const run = await readRun(idle, stdout.trimEnd());
  expect(run.payload.toString()).toBe(payload);
});

test('the caller of the run is the user on this machine', async () => {
  await createAutomation(idle, 'called');
  const { stdout } = await orcIdle(['called', '--json']);
  const { runId, status } = JSON.parse(stdout);
  expect(status).toBe('queued');
  const caller = { user: userInfo().username, host: hostname() };
  expect((await idle.runs.get(runId))?.caller).toEqual(caller);
  const { stdout: shown } = await runOrc(['runs', 'show', runId], { env: idle.env });
  expect(shown).toContain(`${caller.user} on ${caller.host}, by the command line`);
});

test('the rate does not count for it, capacity and concurrency do', async () => {
  await createAutomation(idle, 'limited', { rate: { limit: 1, windowMs: 60_000 }, concurrency: 1 });
  await orcIdle(['limited']);
  const { stdout } = await orcIdle(['limited']);
  expect(stdout).toMatch(/^run_/);
  expect(await idle.lanes.parked()).toMatchObject([{ slug: 'limited', count: 1 }]);
  const full = await orcIdle(['limited'], { env: { MAX_QUEUED_RUNS: '1' } });
  expect([full.code, full.stdout]).toEqual([1, '']);
  expect(full.stderr).toContain('The queue is full');
});

test('an idempotency key starts a single run, and is refused with another payload', async () => {
  await createAutomation(idle, 'once');
  const args = ['once', '--idempotency-key', 'night 1', '-d', '{"a":1}'];
  const first = await orcIdle(args);
  expect(await orcIdle(args)).toEqual(first);
  const other = await orcIdle(['once', '--idempotency-key', 'night 1', '-d', '{"a":2}']);
  expect([other.code, other.stdout]).toEqual([1, '']);
  expect(other.stderr).toContain('was used before with another payload');
});

test.each([
  ['what is not JSON', ['-d', '{"a":'], 2, 'not valid JSON'],
  ['an array', ['-d', '[1]'], 2, 'not a JSON object'],
  ['a file that is missing', ['-d', '@no.json'], 1, 'no.json cannot be read'],
  ['a payload that is too large', ['-d', JSON.stringify({ a: 'x'.repeat(2000) })], 1, 'BODY_LIMIT_BYTES'],
  ['an empty key', ['--idempotency-key', ''], 2, '--idempotency-key takes'],
  ['a log in JSON', ['--follow', '--json'], 2, 'cannot be used with'],
  ['a timeout without a unit', ['--wait', '--timeout', '5'], 2, 'not a duration'],
])('%s is refused, and nothing is started', async (name, args, code, message) => {
  const slug = name.replaceAll(/\W+/g, '-').toLowerCase();
  await createAutomation(idle, slug);
  const refused = await orcIdle([slug, ...args], { env: { BODY_LIMIT_BYTES: '1024' } });
  expect([refused.code, refused.stdout]).toEqual([code, '']);
  expect(refused.stderr).toContain(message);
  expect(await idle.runs.list({ automation: slug, limit: 1 })).toEqual([]);
});

test('a disabled automation is not started, and an unknown one is suggested', async () => {
  await createAutomation(idle, 'switched-off', { enabled: false });
  expect((await orcIdle(['switched-off'])).stderr).toContain('orc automations enable switched-off');
  expect((await orcIdle(['swiched-off'])).stderr).toContain('Did you mean switched-off?');
});

test('--wait has the exit code of how the run ended, and --follow prints its output as well', async () => {
  await createAutomation(store, 'fine', { action: script('process.stdin.pipe(process.stdout)') });
  await createAutomation(store, 'failing', { action: command('false') });
  await createAutomation(store, 'slow', { action: command('sleep', '60') });
  const waited = await orc('fine', '--wait', '-d', '{"a":1}');
  expect([waited.code, waited.stdout]).toEqual([0, expect.stringMatching(/^run_\S+ succeeded: /)]);
  const followed = await orc('fine', '--follow', '-d', '{"a":1}');
  expect([followed.code, followed.stdout]).toEqual([0, '{"a":1}']);
  expect(followed.stderr).toMatch(/run_\S+ succeeded: /);
  expect((await orc('failing', '--follow')).code).toBe(1);
  const json = await orc('failing', '--wait', '--json');
  expect([json.code, JSON.parse(json.stdout)]).toEqual([1, expect.objectContaining({ status: 'failed' })]);
  const late = await orc('slow', '--follow', '--timeout', '300ms');
  expect([late.code, late.stderr]).toEqual([5, expect.stringContaining('has not ended after 300ms')]);
});
