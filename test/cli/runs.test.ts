import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { freePort } from '../../src/local/free-port.ts';
import { runOrc } from '../support/orc.ts';
import {
  ORC,
  type OrcProcess,
  startApiProcess,
  startOrc,
  startWorkerProcess,
} from '../support/orc-process.ts';
import { command, createAutomation, openTestStore, script } from '../support/store.ts';
import { acceptRuns, eventually, isRunning, openFolder, waitFor } from '../worker/workbench.ts';

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

/** Runs a line of shell in which $ORC is the executable. Takes the output as a whole, so that no character breaks. */
const shell = (line: string, ...args: string[]) =>
  promisify(execFile)('sh', ['-c', `ORC="${process.execPath} ${ORC}"; ${line}`, 'sh', ...args], {
    env: { PATH: process.env['PATH'], ...store.env },
    maxBuffer: 100e6,
  });

const orc = (...args: string[]) => runOrc(['runs', ...args], { env: store.env });
const orcIdle = (...args: string[]) => runOrc(['runs', ...args], { env: idle.env });

/** Has a run executed to its end. */
async function executed(slug: string, changes: Partial<AutomationDefinition>): Promise<string> {
  const [runId = ''] = await acceptRuns(store, slug, changes);
  await eventually(async () => (await store.runs.get(runId))?.endedAt).toBeInstanceOf(Date);
  return runId;
}

test('list shows the newest runs first, filtered and limited as asked', async () => {
  const [oldest = '', newer = ''] = await acceptRuns(idle, 'first', {}, ['{}', '{"a":1}']);
  const [newest = ''] = await acceptRuns(idle, 'second');
  const [all, first, two, queued, running] = await Promise.all([
    orcIdle('list'),
    orcIdle('list', '--automation', 'first', '--json'),
    orcIdle('list', '--limit', '2', '--json'),
    orcIdle('list', '--status', 'queued', '--json'),
    orcIdle('list', '--status', 'running', '--json'),
  ]);
  const [header, ...rows] = all.stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ {2,}/).slice(0, 3));
  expect(header).toEqual(['RUN', 'AUTOMATION', 'STATUS']);
  expect(rows).toEqual([
    [newest, 'second', 'queued'],
    [newer, 'first', 'queued'],
    [oldest, 'first', 'queued'],
  ]);
  const ids = (stdout: string) => JSON.parse(stdout).map(({ id }: { id: string }) => id);
  expect(ids(first.stdout)).toEqual([newer, oldest]);
  expect(ids(two.stdout)).toEqual([newest, newer]);
  expect(ids(queued.stdout)).toEqual([newest, newer, oldest]);
  expect(ids(running.stdout)).toEqual([]);
});

test('list says that there are no such runs, or that there is no such automation', async () => {
  await acceptRuns(idle, 'empty', {}, []);
  const none = await orcIdle('list', '--automation', 'empty');
  expect([none.code, none.stdout]).toEqual([0, 'There are no such runs.\n']);
  const unknown = await orcIdle('list', '--automation', 'emtpy');
  expect([unknown.code, unknown.stdout]).toEqual([1, '']);
  expect(unknown.stderr).toContain('There is no automation "emtpy". Did you mean empty?');
});

test.each([
  [['--status', 'done'], "'done' is not a status. Use one of: queued, running, retrying, succeeded"],
  [['--limit', '0'], "--limit must be a whole number from 1 to 999999999, not '0'"],
  [['--limit', 'all'], "not 'all'"],
])('list %j is a usage error that says what to do', async (args, sentence) => {
  const { code, stdout, stderr } = await orcIdle('list', ...args);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain(sentence);
});

test('show says how a run ended', async () => {
  const runId = await executed('ends', { action: command('sh', '-c', 'exit 3') });
  const { code, stdout } = await orc('show', runId);
  expect(code).toBe(0);
  const shown = Object.fromEntries(
    stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split(/ {2,}/)),
  );
  const run = await store.runs.get(runId);
  expect(shown).toMatchObject({
    run: runId,
    automation: 'ends',
    status: 'failed',
    outcome: 'The command exited with code 3.',
    reason: 'exit_code',
    'exit code': '3',
    accepted: run?.acceptedAt.toISOString(),
    ended: run?.endedAt?.toISOString(),
    worker: run?.worker,
    payload: '2 bytes',
    request: 'test-request',
  });
  expect(JSON.parse((await orc('show', runId, '--json')).stdout)).toMatchObject(
    JSON.parse(JSON.stringify(run)),
  );
});

test('show of a run that waits shows no end', async () => {
  const [runId = ''] = await acceptRuns(idle, 'waits');
  const { stdout } = await orcIdle('show', runId);
  expect(stdout).toMatch(/^status +queued$/m);
  expect(stdout).not.toMatch(/^(ended|result|took|started)/m);
});

test('show says who called', async () => {
  const apiKey = await createAutomation(idle, 'called');
  const api = await startApiProcess(idle.env);
  const headers = { 'x-api-key': apiKey, 'user-agent': `ci/1.0 ${'x'.repeat(300)}` };
  const url = `${api.url}/orc/api/automation-triggers/called`;
  const accepted = await fetch(url, { method: 'POST', headers }).finally(() => api.stop('SIGTERM'));
  const { runId } = (await accepted.json()) as { runId: string };
  const { stdout } = await orcIdle('show', runId);
  expect(stdout).toMatch(/^caller +127\.0\.0\.1$/m);
  expect(stdout).toMatch(/^user agent +ci\/1\.0 x{193}$/m);
});

test.each(['show', 'logs'])('%s of a run that does not exist fails and says where to look', async (verb) => {
  for (const runId of ['run_unknown', '*']) {
    const { code, stdout, stderr } = await orc(verb, runId);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`There is no run "${runId}".`);
    expect(stderr).toContain('orc runs list');
  }
});

test('logs of a run that waits says what it waits for', async () => {
  const [runId = ''] = await acceptRuns(idle, 'silent');
  const { code, stdout, stderr } = await orcIdle('logs', runId);
  const text = 'orc: queued: no worker is alive; the cure: orc worker\n';
  expect([code, stdout, stderr]).toEqual([0, '', text]);
});

test("logs prints the run's output to standard output and the rest to standard error", async () => {
  const source = 'echo out; echo err >&2; printf "no end of line"';
  const runId = await executed('prints', { action: command('sh', '-c', source) });
  const { code, stdout, stderr } = await orc('logs', runId);
  expect([code, stdout]).toEqual([0, 'out\nno end of line']);
  expect(stderr).toMatch(/^orc: Attempt 1 starts on worker \S+\n/);
  expect(stderr).toContain('err\n');
  expect(stderr).toMatch(/orc: Attempt 1 ended: The command exited with code 0\.\n$/);
});

test('logs --json prints an object a line and breaks no character apart', async () => {
  const source = `process.stdout.write('x' + '😀'.repeat(50_000)); process.stderr.write('err\\n');`;
  const runId = await executed('json-logs', { action: script(source) });
  const { stdout, stderr } = await shell('$ORC runs logs --json "$1"', runId);
  expect(stderr).toBe('');
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  const text = (wanted: string) =>
    lines
      .filter(({ source: each }) => each === wanted)
      .map(({ text: each }) => each)
      .join('');
  expect(text('stdout') === `x${'😀'.repeat(50_000)}`).toBe(true);
  expect(text('stderr')).toBe('err\n');
  expect(text('orc')).toContain('Attempt 1 starts');
  expect(lines.length).toBeGreaterThan(4);
  for (const { time, attempt } of lines) {
    expect(new Date(time).toISOString()).toBe(time);
    expect(attempt).toBe(1);
  }
});

test('logs of a very long output shows where something was cut out, and how much', async () => {
  const source = `for (let line = 0; line < 50000; line++) {
    require('node:fs').writeSync(1, String(line).padStart(99) + '\\n');
  }`;
  const runId = await executed('long', { action: script(source) });
  const [people, programs] = await Promise.all([orc('logs', runId), orc('logs', runId, '--json')]);
  expect(people.stdout.startsWith('0\n'.padStart(100))).toBe(true);
  expect(people.stdout.endsWith('49999\n')).toBe(true);
  const cut = 5_000_000 - people.stdout.length;
  expect(cut).toBeGreaterThan(3_000_000);
  expect(people.stderr).toContain(`orc: ${cut} bytes of output were cut here\n`);
  const cuts = programs.stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line).cutBytes);
  expect(cuts.filter((bytes) => bytes !== undefined)).toEqual([cut]);
});

test('logs into a pipe that is closed early ends without a complaint', async () => {
  const runId = await executed('piped', { action: script(`console.log('x'.repeat(300_000))`) });
  const { stdout, stderr } = await shell(
    '{ $ORC runs logs "$1" 2>&3; echo "exit code $?" >&3; } 3>&2 | head -c 5',
    runId,
  );
  expect(stdout).toBe('xxxxx');
  expect(stderr).toMatch(/^(orc: .*\n)*exit code 0\n$/);
});

test.each([[[]], [['--json']]])(
  'logs --follow %j prints what comes until the run has ended',
  async (options) => {
    const name = `followed${options.length}`;
    const [runId = ''] = await acceptRuns(store, name, { action: waitFor(folder(name)) });
    const following = startOrc(['runs', 'logs', '--follow', ...options, runId], { env: store.env });
    await following.line('Attempt 1 starts');
    expect(following.child.exitCode).toBeNull();
    expect(following.lines.join('\n')).not.toContain('done');
    const closed = once(following.child, 'close');
    writeFileSync(folder(name), '');
    await following.line('done');
    await following.line('Attempt 1 ended');
    expect((await closed)[0]).toBe(0);
    expect((await store.runs.get(runId))?.status).toBe('succeeded');
  },
);

test('logs --follow of a run that waits follows it from its start', async () => {
  const gate = folder('waits-first');
  const [runId = ''] = await acceptRuns(
    store,
    'waits-first',
    {
      action: waitFor(gate),
      concurrency: 1,
    },
    ['{}', '{}'],
  );
  const second = (await store.runs.list({ automation: 'waits-first', limit: 2 }))[0]?.id ?? '';
  expect(second).not.toBe(runId);
  const following = startOrc(['runs', 'logs', '-f', second], { env: store.env });
  const closed = once(following.child, 'close');
  writeFileSync(gate, '');
  expect((await closed)[0]).toBe(0);
  expect(following.lines).toContain('done');
});

test('logs --follow of a run that has ended prints it and ends', async () => {
  const runId = await executed('ended-before', { action: command('echo', 'hello') });
  const { code, stdout } = await orc('logs', '--follow', runId);
  expect([code, stdout]).toEqual([0, 'hello\n']);
});

test('show lists the attempts of a run that needed several', async () => {
  const action = command('sh', '-c', 'test "$ORC_ATTEMPT" = 2');
  const runId = await executed('twice', { attempts: 2, action });
  const { stdout } = await orc('show', runId);
  const rows = stdout
    .trimEnd()
    .split('\n')
    .slice(-3)
    .map((line) => line.split(/ {2,}/));
  expect(rows.map(([attempt, , , , result]) => [attempt, result])).toEqual([
    ['ATTEMPT', 'OUTCOME'],
    ['1', 'The command exited with code 1.'],
    ['2', 'The command exited with code 0.'],
  ]);
  const { attempts } = JSON.parse((await orc('show', runId, '--json')).stdout);
  expect(attempts).toMatchObject([{ attempt: 1 }, { attempt: 2, outcome: { status: 'succeeded' } }]);
});

test.each([
  ['exit 0', 0, 'succeeded: The command exited with code 0.'],
  ['exit 7', 1, 'failed: The command exited with code 7.'],
  ['sleep 60', 3, 'timed_out: The command took longer than 300 ms and was ended.'],
])('watch of a run with `%s` waits for it and exits with %i', async (source, code, ending) => {
  const [runId = ''] = await acceptRuns(store, `watched-${code}`, {
    action: command('sh', '-c', source),
    timeoutMs: 300,
  });
  const watched = await orc('watch', runId);
  expect(watched.code).toBe(code);
  expect(code === 0 ? watched.stdout : watched.stderr).toContain(`${runId} ${ending}`);
});

test('watch gives up when its time is over, and says how the run stands', async () => {
  const [runId = ''] = await acceptRuns(idle, 'unwatched');
  const { code, stderr } = await orcIdle('watch', runId, '--timeout', '300ms');
  expect([code, stderr]).toEqual([
    5,
    `queued: no worker is alive; the cure: orc worker\norc: ${runId} has not ended after 300ms: it is queued. See: orc runs show ${runId}\n`,
  ]);
});

test('cancel ends a run that waits, so that it never starts', async () => {
  const [runId = ''] = await acceptRuns(idle, 'unwanted');
  const cancelled = await orcIdle('cancel', runId);
  expect([cancelled.code, cancelled.stdout]).toEqual([0, `The run ${runId} is cancelled.\n`]);
  expect(await idle.runs.get(runId)).toMatchObject({ status: 'cancelled', attempt: 0 });
  const again = await orcIdle('cancel', runId, '--json');
  expect([again.code, JSON.parse(again.stdout).status]).toEqual([0, 'cancelled']);
  const watched = await orcIdle('watch', runId);
  expect([watched.code, watched.stderr]).toEqual([
    4,
    `orc: ${runId} cancelled: An operator cancelled the run. See: orc runs logs ${runId}\n`,
  ]);
});

test('cancel ends the whole process group of a run that executes', async () => {
  const pidFile = folder('cancelled.pid');
  const source = `sleep 300 & echo $! > ${pidFile}; wait`;
  const [runId = ''] = await acceptRuns(store, 'endless', { action: command('sh', '-c', source) });
  await eventually(() => existsSync(pidFile) && readFileSync(pidFile, 'utf8').endsWith('\n')).toBe(true);
  const pid = Number(readFileSync(pidFile, 'utf8'));
  const { code, stdout } = await orc('cancel', runId);
  expect([code, stdout]).toEqual([0, `The run ${runId} is cancelled.\n`]);
  expect(await store.runs.get(runId)).toMatchObject({
    status: 'cancelled',
    outcome: { reason: 'cancelled_by_operator' },
  });
  await eventually(() => isRunning(pid)).toBe(false);
});

test('cancel of a run that has ended says how it did', async () => {
  const runId = await executed('over', {});
  const { code, stderr } = await orc('cancel', runId);
  expect([code, stderr]).toEqual([
    1,
    `orc: The run ${runId} ended before it could be cancelled: succeeded.\n`,
  ]);
});

test('retry accepts a new run with the same payload, and waits for it when asked', async () => {
  const action = command('sh', '-c', 'cat; test -e "$0" || { touch "$0"; exit 1; }', folder('retried'));
  const [runId = ''] = await acceptRuns(store, 'flaky', { action }, ['{"n":1e400}']);
  await eventually(async () => (await store.runs.get(runId))?.status).toBe('failed');
  const { code, stdout, stderr } = await orc('retry', runId, '--wait');
  expect(code).toBe(0);
  const newId = /run_[0-9a-f-]{36}/.exec(stderr)?.[0] ?? '';
  expect(stdout).toBe(`${newId} succeeded: The command exited with code 0.\n`);
  expect((await orc('logs', newId)).stdout).toBe('{"n":1e400}');
  expect((await orc('show', newId)).stdout).toMatch(new RegExp(`^repeats +${runId}$`, 'm'));
});

test('retry says why it cannot', async () => {
  const [open = ''] = await acceptRuns(idle, 'to-retry');
  expect((await orcIdle('retry', open)).stderr).toContain(`The run ${open} is queued. Only an ended run`);
  await orcIdle('cancel', open);
  await idle.automations.setEnabled('to-retry', false);
  expect((await orcIdle('retry', open)).stderr).toContain('First: orc automations enable to-retry');
  await idle.automations.delete('to-retry');
  expect((await orcIdle('retry', open)).stderr).toContain('The automation to-retry is deleted');
});

test("neither the worker's log nor what is shown of a run has the secrets of its URL", async () => {
  const url = `http://127.0.0.1:${await freePort()}/hook?token=s3cret-token`;
  const runId = await executed('secret-url', { action: { type: 'http', url } });
  const shown = await Promise.all([
    orc('show', runId),
    orc('show', runId, '--json'),
    orc('logs', runId),
    orc('list'),
  ]);
  expect(shown[0].stdout).toContain('The request failed: connect ECONNREFUSED');
  await worker.record(({ msg, runId: id }) => msg === 'run ended' && id === runId);
  const all = [...worker.lines, ...shown.flatMap(({ stdout, stderr }) => [stdout, stderr])].join('\n');
  expect(all).not.toContain('s3cret-token');
});

const sh = (source: string) => command('sh', '-c', source);

test('result prints the result of a run as it was given, and show tells it', async () => {
  const action = sh(`printf '{ "n": 12345678901234567890 }' > "$ORC_RESULT_FILE"`);
  const runId = await executed('tells', { action });
  const [plain, json, shown, shownJson] = await Promise.all([
    orc('result', runId),
    orc('result', runId, '--json'),
    orc('show', runId),
    orc('show', runId, '--json'),
  ]);
  expect(plain).toEqual({ code: 0, stdout: '{ "n": 12345678901234567890 }\n', stderr: '' });
  expect(json).toEqual(plain);
  expect(shown.stdout).toMatch(/^result +\{"n":\d+\}$/m);
  expect(JSON.parse(shownJson.stdout).result).toEqual({ n: Number('12345678901234567890') });
});

test('result of a run without one says why', async () => {
  const [waiting = ''] = await acceptRuns(idle, 'has-not-ended');
  expect((await orcIdle('result', waiting)).stderr).toContain(
    'is queued. It may have a result once it has ended',
  );
  const none = await orc('result', await executed('tells-nothing', {}));
  expect([none.code, none.stderr]).toEqual([1, expect.stringContaining('to $ORC_RESULT_FILE.\n')]);
  const runId = await executed('tells-nonsense', { action: sh('echo done > "$ORC_RESULT_FILE"') });
  const problem = 'The file $ORC_RESULT_FILE is not JSON in UTF-8, so it is not kept as the result.';
  expect((await orc('result', runId)).stderr).toContain(problem);
  expect((await orc('show', runId)).stdout).toContain(problem);
});

test('list, show and watch say what the command said last', async () => {
  const runId = await executed('says-why', { action: sh('echo "no such table: users" >&2; exit 3') });
  const ending = 'The command exited with code 3: no such table: users';
  expect((await orc('list', '--automation', 'says-why')).stdout).toContain(ending);
  expect((await orc('watch', runId)).stderr).toContain(`failed: ${ending}`);
  expect((await orc('show', runId)).stdout).toMatch(/^detail +no such table: users$/m);
});
