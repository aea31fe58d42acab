import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import type { CommandAction } from '../../src/core/actions/command.ts';
import { openCommands } from '../../src/worker/actions/command.ts';
import type { Guard } from '../../src/worker/guard/guard.ts';
import { LOCK_LOST, SHUTTING_DOWN } from '../../src/worker/lease.ts';
import { openWorkFolders } from '../../src/worker/work-folders.ts';
import { compiled } from '../support/repository.ts';
import { command, script } from '../support/store.ts';
import {
  ESCAPE,
  endProcess,
  eventually,
  exists,
  HARD_PAYLOAD,
  isRunning,
  NO_GUARD,
  newAttempt,
  openFolder,
  openWorkbench,
  readLog,
  sha256,
} from './workbench.ts';

const { store, attempt, run } = openWorkbench();
const folder = openFolder();

/** A file that exists and that nobody may execute. */
const plainFile = folder('plain.txt');
writeFileSync(plainFile, '', { mode: 0o600 });

/** A script whose interpreter does not exist. */
const scriptOfNobody = folder('script');
writeFileSync(scriptOfNobody, '#!/no/such/interpreter\n', { mode: 0o700 });

const SUCCESS = {
  outcome: {
    status: 'succeeded',
    reason: 'exit_code',
    message: 'The command exited with code 0.',
    exitCode: 0,
  },
  mayRetry: false,
};

const sh = (source: string, ...args: string[]) => command('sh', '-c', source, 'sh', ...args);
const inFolder = (action: ReturnType<typeof command>, cwd: string) => ({ ...(action as CommandAction), cwd });

test('a command receives the payload on standard input and in a file, byte for byte', async () => {
  const report = script(`
    const { createHash } = require('node:crypto');
    const { readFileSync, statSync } = require('node:fs');
    const sha256 = (data) => createHash('sha256').update(data).digest('hex');
    const file = process.env.ORC_PAYLOAD_FILE;
    const chunks = [];
    process.stdin.on('data', (chunk) => chunks.push(chunk)).on('end', () => console.log(JSON.stringify({
      stdin: sha256(Buffer.concat(chunks)),
      file: sha256(readFileSync(file)),
      mode: (statSync(file).mode & 0o777).toString(8),
    })));`);
  const { result, stdout } = await run(report, { run: { payload: HARD_PAYLOAD } });
  expect(result).toEqual(SUCCESS);
  const expected = sha256(HARD_PAYLOAD);
  expect(JSON.parse(stdout)).toEqual({ stdin: expected, file: expected, mode: '600' });
});

test('a command need not read its input, however much it is', async () => {
  const payload = HARD_PAYLOAD;
  expect((await run(command('true'), { run: { payload } })).result).toEqual(SUCCESS);
  expect((await run(sh('exec 0<&-; echo closed; exit 0'), { run: { payload } })).result).toEqual(SUCCESS);
});

const PRINT_ENVIRONMENT = 'console.log(JSON.stringify(process.env))';

test('a command sees PATH, HOME, LANG, TZ, the variables of its run and nothing else of the worker', async () => {
  const inherited = { PATH: process.env['PATH'], HOME: '/nowhere', LANG: 'C.UTF-8', TZ: 'Asia/Tokyo' };
  const env = { ...inherited, CANARY: 'must not leak', REDIS_URL: 'redis://:secret@redis', NODE_OPTIONS: '' };
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  const { run: made, stdout } = await run(script(PRINT_ENVIRONMENT), {
    env,
    run: { attempt: 3, automation: 'nightly-report', traceparent, tracestate: 'rojo=1' },
  });
  expect(JSON.parse(stdout)).toEqual({
    ...inherited,
    ORC_WORKER: 'worker-7',
    ORC_RUN_ID: made.id,
    ORC_AUTOMATION: 'nightly-report',
    ORC_ATTEMPT: '3',
    ORC_ACCEPTED_AT: '2026-01-02T03:04:05.678Z',
    ORC_PAYLOAD_FILE: expect.stringMatching(/^\//),
    ORC_RESULT_FILE: expect.stringMatching(/^\//),
    ORC_ARTIFACTS_DIR: expect.stringMatching(/^\//),
    TRACEPARENT: traceparent,
    TRACESTATE: 'rojo=1',
  });
});

test('what the worker itself does not have is not passed on either', async () => {
  const { PATH } = process.env;
  const action = { ...(script(PRINT_ENVIRONMENT) as CommandAction), passEnv: ['ABSENT'] };
  const { stdout } = await run(action, { env: { PATH } });
  expect(Object.keys(JSON.parse(stdout)).sort()).toEqual([
    'ORC_ACCEPTED_AT',
    'ORC_ARTIFACTS_DIR',
    'ORC_ATTEMPT',
    'ORC_AUTOMATION',
    'ORC_PAYLOAD_FILE',
    'ORC_RESULT_FILE',
    'ORC_RUN_ID',
    'ORC_WORKER',
    'PATH',
  ]);
});

test('stored variables and those passed on by name are added; stored ones win', async () => {
  const action = {
    ...(script(PRINT_ENVIRONMENT) as CommandAction),
    env: { GREETING: 'hello $HOME `id`', LANG: 'stored', BOTH: 'stored', EMPTY: '' },
    passEnv: ['API_TOKEN', 'BOTH'],
  };
  const { PATH } = process.env;
  const { stdout } = await run(action, {
    env: { PATH, LANG: 'inherited', API_TOKEN: 'token', BOTH: 'passed', OTHER: 'not passed' },
  });
  const seen = JSON.parse(stdout);
  expect(seen).toMatchObject({ GREETING: 'hello $HOME `id`', EMPTY: '', API_TOKEN: 'token' });
  expect([seen.LANG, seen.BOTH, seen.OTHER]).toEqual(['stored', 'stored', undefined]);
});

test.each([
  ['succeeds', 'exit 0'],
  ['fails', 'exit 3'],
  ['is ended by a signal', 'kill -9 $$'],
])('what a command leaves in its folder for artifacts is collected when it %s', async (_, ending) => {
  const { artifacts } = await run(
    sh(`cd "$ORC_ARTIFACTS_DIR"; mkdir logs; echo out > logs/out.txt; ln -s /etc/passwd link; ${ending}`),
  );
  expect(artifacts.list()).toMatchObject({
    artifacts: [{ name: 'logs/out.txt', bytes: 4, sha256: sha256('out\n') }],
    omitted: [{ name: 'link', reason: 'not_a_file' }],
  });
});

test('what a command left that was ended at its time limit is collected, that of a lost run is not', async () => {
  const leave = 'echo out > "$ORC_ARTIFACTS_DIR/out"; ';
  const { result, artifacts } = await run(sh(`${leave} exec sleep 1000`), { timeoutMs: 500 });
  expect(result).toMatchObject({ outcome: { status: 'timed_out' } });
  expect(artifacts.list().artifacts).toMatchObject([{ name: 'out' }]);
  const signal = AbortSignal.timeout(500);
  const lost = new AbortController();
  signal.addEventListener('abort', () => lost.abort(LOCK_LOST));
  const other = await run(sh(`${leave} exec sleep 1000`), { signal: lost.signal });
  expect([other.result, other.artifacts.list().artifacts]).toEqual(['interrupted', []]);
});

test('no shell interprets the arguments', async () => {
  const marker = folder('interpreted');
  const words = [`$(touch ${marker})`, `; touch ${marker}`, `\`touch ${marker}\``, '&&', '|', '>', '*', '~'];
  const more = ['$HOME', 'two words', "it's", '"', '\\', '\n', '', 'Zürich 😀', '--', '-e'];
  const argv = [...words, ...more];
  const action = command(process.execPath, '-e', 'console.log(JSON.stringify(process.argv.slice(1)))', '--');
  (action as CommandAction).argv.push(...argv);
  const { stdout } = await run(action);
  expect(JSON.parse(stdout)).toEqual(argv);
  expect(existsSync(marker)).toBe(false);
});

const PRINT_DIRECTORY = `console.log(JSON.stringify([process.cwd(), require('node:fs').readdirSync('.'),
  process.env.ORC_PAYLOAD_FILE]));`;

test.each([
  ['success', ''],
  ['failure', 'require("node:fs").writeFileSync("left", "behind"); process.exit(3)'],
  ['a signal', 'process.kill(process.pid, "SIGKILL")'],
])('each attempt works in an empty directory of its own, which is removed after %s', async (_, ending) => {
  const first = await run(script(`${PRINT_DIRECTORY}${ending}`));
  const second = await run(script(`${PRINT_DIRECTORY}${ending}`));
  const [directory, content, payloadFile] = JSON.parse(first.stdout);
  expect(content).toEqual([]);
  expect(JSON.parse(second.stdout)[0]).not.toBe(directory);
  expect([existsSync(directory), existsSync(payloadFile), existsSync(dirname(payloadFile))]).toEqual([
    false,
    false,
    false,
  ]);
});

test('--cwd is where the command works, and stays as the command left it', async () => {
  const cwd = folder('own-directory');
  mkdirSync(cwd);
  writeFileSync(`${cwd}/before`, '');
  const { stdout } = await run(inFolder(script(`${PRINT_DIRECTORY}`), cwd));
  const [directory, content, payloadFile] = JSON.parse(stdout);
  expect([directory, content]).toEqual([cwd, ['before']]);
  expect(existsSync(payloadFile)).toBe(false);
  await run(inFolder(sh('touch after'), cwd));
  expect(readdirSync(cwd)).toEqual(['after', 'before']);
});

test('a working directory that cannot be removed does not change how the run ended', async () => {
  const workFolders = openWorkFolders(() => undefined, folder('replaced'));
  const commands = openCommands({ environment: { PATH: process.env['PATH'] }, workFolders });
  // Nothing can be removed that lies below a file.
  const replace = sh('folder=$(dirname "$(dirname "$PWD")"); cd /; rm -r "$folder"; touch "$folder"');
  const { result, notes } = await attempt((context) => commands.perform(replace as CommandAction, context));
  await workFolders.close();
  expect(result).toMatchObject(SUCCESS);
  expect(notes).toMatch(/ENOTDIR.*lstat/);
});

test.each([0, 1, 3, 255])('exit code %i is what the outcome says, and only 0 succeeds', async (exitCode) => {
  const { result } = await run(sh(`exit ${exitCode}`));
  const status = exitCode === 0 ? 'succeeded' : 'failed';
  const message = `The command exited with code ${exitCode}.`;
  expect(result).toEqual({
    outcome: { status, reason: 'exit_code', message, exitCode },
    mayRetry: exitCode !== 0,
  });
});

test.each(['SIGSEGV', 'SIGKILL', 'SIGTERM'])('a command that %s ends has failed', async (signal) => {
  const { result } = await run(script(`process.kill(process.pid, '${signal}'); setTimeout(() => {}, 1e6)`));
  const message = `The command was ended by ${signal}.`;
  expect(result).toEqual({
    outcome: { status: 'failed', reason: 'signal', message, signal },
    mayRetry: true,
  });
});

test.each<[string, CommandAction, string]>([
  [
    'a program that does not exist',
    command('no-such-program') as CommandAction,
    'spawn no-such-program ENOENT',
  ],
  [
    'a program that is not on the PATH',
    command('no-such-program') as CommandAction,
    'no-such-program is not on the PATH of the worker, and the working directory is an empty one; use an absolute path, or --cwd DIR with ./no-such-program',
  ],
  [
    'a program of a folder that is not the working directory',
    command('./deploy.sh') as CommandAction,
    './deploy.sh is not in the empty working directory of the attempt; use an absolute path, or set --cwd',
  ],
  [
    'a program that is not in the working directory',
    inFolder(command('./deploy.sh'), dirname(plainFile)),
    `there is no ${folder('deploy.sh')} on this worker`,
  ],
  [
    'a script whose interpreter is missing',
    command(scriptOfNobody) as CommandAction,
    `the interpreter in the first line of ${scriptOfNobody} is missing`,
  ],
  ['a file that is not executable', command(plainFile) as CommandAction, `spawn ${plainFile} EACCES`],
  ['a path through a file', command(`${plainFile}/program`) as CommandAction, 'ENOTDIR'],
  ['arguments that are too long', command('true', 'x'.repeat(8_000_000)) as CommandAction, 'E2BIG'],
  [
    'a working directory that is missing',
    inFolder(command('true'), '/no/such'),
    'there is no directory /no/such',
  ],
  [
    'a working directory that is a file',
    inFolder(command('true'), plainFile),
    `there is no directory ${plainFile}`,
  ],
])('%s is an outcome with its reason, not an error', async (_, action, reason) => {
  const { result, notes } = await run(action);
  expect(result).toEqual({
    outcome: { status: 'failed', reason: 'not_started', message: expect.stringContaining(reason) },
    mayRetry: true,
  });
  expect(notes).toContain(reason);
});

test('a command that a shell does not find is explained', async () => {
  const notFound = 'The command exited with code 127: a command was not found.';
  const { result } = await run(sh('./deploy.sh'));
  expect(result).toMatchObject({
    outcome: {
      message: `${notFound} It ran in an empty working directory; use an absolute path, or set --cwd.`,
    },
  });
  const { result: inPlace } = await run(inFolder(sh('./deploy.sh'), folder('.')));
  expect(inPlace).toMatchObject({ outcome: { message: `${notFound} Use an absolute path.` } });
});

test('a variable that the worker should pass on and does not have is named in the log', async () => {
  const action = { ...(command('true') as CommandAction), passEnv: ['ABSENT', 'STORED', 'EMPTY', 'GONE'] };
  const env = { PATH: process.env['PATH'], EMPTY: '' };
  const { notes } = await run({ ...action, env: { STORED: 'x' } }, { env });
  expect(notes).toBe(
    'The worker does not have what --pass-env names: ABSENT, GONE. The command runs without.\n',
  );
});

test('what a command writes to $ORC_RESULT_FILE is its result, whether it succeeds or not', async () => {
  const write = `printf '{"version":"1.4.2"}' > "$ORC_RESULT_FILE"`;
  expect((await run(sh(write))).result).toEqual({ ...SUCCESS, result: '{"version":"1.4.2"}' });
  expect((await run(sh(`${write}; exit 3`))).result).toMatchObject({
    outcome: { status: 'failed', exitCode: 3 },
    result: '{"version":"1.4.2"}',
  });
});

test('what is no result changes nothing but the log and what the outcome says of it', async () => {
  const { result, notes } = await run(sh('echo done > "$ORC_RESULT_FILE"'));
  const resultProblem = 'The file $ORC_RESULT_FILE is not JSON in UTF-8, so it is not kept as the result.';
  expect(result).toEqual({ ...SUCCESS, outcome: { ...SUCCESS.outcome, resultProblem } });
  expect(notes).toBe(`${resultProblem}\n`);
});

test('no command starts before the guard is ready', async () => {
  const events: string[] = [];
  const note = (event: string) => () => void events.push(event);
  const guard: Guard = {
    ...NO_GUARD,
    ready: sleep(300).then(note('ready')),
    watch: () => {
      events.push('watch');
      return { leads: note('leads'), end: note('end') };
    },
  };
  await run(command('true'), { guard });
  expect(events.slice(0, 3)).toEqual(['ready', 'watch', 'leads']);
});

test('a worker that has no file descriptors left fails the attempt and lives on', () => {
  const source = `
    import { closeSync, openSync } from 'node:fs';
    import { openCommands } from '${compiled('worker/actions/command.js')}';
    import { openWorkFolders } from '${compiled('worker/work-folders.js')}';
    const action = { type: 'command', argv: ['true'], env: {}, passEnv: [] };
    const run = { payload: Buffer.from('{}'), acceptedAt: new Date() };
    const log = { note() {}, write() {} };
    const guard = { ready: Promise.resolve(), watch: () => ({ leads() {}, end() {} }) };
    const context = { run, log, timeoutMs: 1e6, signal: new AbortController().signal, guard, tidyUp() {} };
    const workFolders = openWorkFolders(() => undefined);
    const settings = { environment: process.env, workFolders };
    await workFolders.create();
    const taken = [];
    try { for (;;) taken.push(openSync('/dev/null')); } catch {}
    for (const descriptor of taken.splice(-3)) closeSync(descriptor);
    const { outcome } = await openCommands(settings).perform(action, context);
    for (const descriptor of taken) closeSync(descriptor);
    await workFolders.close();
    console.log(outcome.reason, outcome.message);`;
  const limited = ['-c', 'ulimit -n 1000; exec "$0" --input-type=module -e "$1"', process.execPath, source];
  const { stdout, stderr, status } = spawnSync('sh', limited, {
    encoding: 'utf8',
    cwd: fileURLToPath(new URL('.', import.meta.url)),
  });
  expect([stdout, stderr, status]).toEqual([
    'not_started The command could not be started: spawn true EMFILE.\n',
    '',
    0,
  ]);
});

test('a run that takes too long ends with its whole process group, also what ignores SIGTERM', async () => {
  // `exec` keeps the disposition: the sleep, a child of the command, does not notice SIGTERM.
  const source = '(trap "" TERM; exec sleep 1000) & echo $!; wait';
  const { result, stdout, notes } = await run(sh(source), { timeoutMs: 1500 });
  const message = 'The command took longer than 1500 ms and was ended.';
  expect(result).toEqual({
    outcome: { status: 'timed_out', reason: 'timeout', message, signal: 'SIGTERM' },
    mayRetry: true,
  });
  expect(notes).toContain('The time limit of 1500 ms is over');
  const grandchild = Number(stdout);
  expect(grandchild).toBeGreaterThan(1);
  await eventually(() => isRunning(grandchild)).toBe(false);
});

test('a command that ignores SIGTERM is killed', async () => {
  const { result, stdout } = await run(sh('trap "" TERM; echo $$; while :; do sleep 1; done'), {
    timeoutMs: 500,
  });
  expect(result).toMatchObject({ outcome: { status: 'timed_out', signal: 'SIGKILL' } });
  expect(isRunning(Number(stdout))).toBe(false);
});

test('a command may use the time between SIGTERM and SIGKILL to put things in order', async () => {
  const source = `process.on('SIGTERM', () => { console.log('in order'); process.exit(7); });
    setInterval(() => {}, 1000);`;
  const { result, stdout } = await run(script(source), { timeoutMs: 1500 });
  expect(stdout).toBe('in order\n');
  expect(result).toMatchObject({ outcome: { status: 'timed_out', exitCode: 7 } });
});

test('what a command leaves running in the background ends with it', async () => {
  const { result, stdout } = await run(sh('sleep 1000 & echo $!'));
  expect(result).toEqual(SUCCESS);
  await eventually(() => isRunning(Number(stdout))).toBe(false);
});

test('a run that takes too long ends with what left its process group, also what ignores SIGTERM', async () => {
  const source = `
    const { spawn } = require('node:child_process');
    const escape = (source) => spawn('sh', ['-c', source], { detached: true, stdio: 'ignore' }).pid;
    console.log(escape('sleep 1000; sleep 1000'), escape('trap "" TERM; sleep 1000; sleep 1000'));
    setInterval(() => {}, 1000);`;
  const { result, stdout } = await run(script(source), { timeoutMs: 1500 });
  expect(result).toMatchObject({ outcome: { status: 'timed_out', signal: 'SIGTERM' } });
  const escaped = stdout.trim().split(' ').map(Number);
  expect(escaped).toHaveLength(2);
  expect(escaped.filter(isRunning)).toEqual([]);
});

test('a process that escaped and holds the outputs open does not hold the run', async () => {
  const { result, stdout } = await run(script(ESCAPE));
  const escaped = Number(stdout);
  try {
    expect(result).toEqual(SUCCESS);
    expect(isRunning(escaped)).toBe(true);
  } finally {
    endProcess(escaped);
  }
});

test('a time limit that ends after the command does not count against it', async () => {
  // The outputs, which are still open, are waited for longer than the time limit.
  const { result, stdout, notes } = await run(script(ESCAPE), { timeoutMs: 950 });
  endProcess(Number(stdout));
  expect(notes).toBe('');
  expect(result).toEqual(SUCCESS);
});

test.each([SHUTTING_DOWN, LOCK_LOST])(
  'when the worker aborts with "%s", the group ends and no outcome is claimed',
  async (reason) => {
    const controller = new AbortController();
    const made = newAttempt();
    const source = '(trap "" TERM; exec sleep 1000) & echo $! $$; wait';
    const running = run(sh(source), { run: made, signal: controller.signal });
    const pids = async () => (await readLog(store, made.id)).stdout.trim().split(' ').map(Number);
    await eventually(pids).toHaveLength(2);
    controller.abort(reason);
    expect((await running).result).toBe('interrupted');
    for (const pid of await pids()) await eventually(() => isRunning(pid)).toBe(false);
  },
);

test('a command that answers the abort with exit code 0 has not succeeded', async () => {
  const controller = new AbortController();
  const made = newAttempt();
  const source = `process.on('SIGTERM', () => process.exit(0)); setInterval(() => {}, 1000); console.log('up');`;
  const running = run(script(source), { run: made, signal: controller.signal });
  await eventually(async () => (await readLog(store, made.id)).stdout).toBe('up\n');
  controller.abort(SHUTTING_DOWN);
  expect((await running).result).toBe('interrupted');
});

test('an attempt aborted before it starts is interrupted', async () => {
  const { result } = await run(sh('sleep 1000'), { signal: AbortSignal.abort(SHUTTING_DOWN) });
  expect(result).toBe('interrupted');
});

test('an abort after the command has ended leaves the outcome as it is', async () => {
  const controller = new AbortController();
  const made = newAttempt();
  const running = run(script(`${ESCAPE} console.log(process.pid);`), {
    run: made,
    signal: controller.signal,
  });
  const pids = async () => (await readLog(store, made.id)).stdout.trim().split('\n').map(Number);
  await eventually(pids).toHaveLength(2);
  const [escaped = 0, leader = 0] = await pids();
  try {
    // Its exit was noticed, and its outputs, which the other holds open, are still waited for.
    await eventually(() => exists(leader)).toBe(false);
    controller.abort(SHUTTING_DOWN);
    expect((await running).result).toEqual(SUCCESS);
  } finally {
    endProcess(escaped);
  }
});
