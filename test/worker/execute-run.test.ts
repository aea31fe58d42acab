import { existsSync, writeFileSync } from 'node:fs';
import { Webhook } from 'standardwebhooks';
import { afterAll, expect, test } from 'vitest';
import type { CommandAction } from '../../src/core/actions/command.ts';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import type { RunAttempt } from '../../src/core/run.ts';
import { createLogger } from '../../src/logger.ts';
import { type Actions, openActions } from '../../src/worker/actions/actions.ts';
import { executeRun } from '../../src/worker/execute-run.ts';
import { CANCELLED, LOCK_LOST, SHUTTING_DOWN } from '../../src/worker/lease.ts';
import type { OutputLog } from '../../src/worker/output-log.ts';
import { openWorkFolders } from '../../src/worker/work-folders.ts';
import { openWorkspaces } from '../../src/worker/workspace/open-workspaces.ts';
import { command, createAutomation, openTestStore } from '../support/store.ts';
import { answerStatus, type Received, startReceiver } from './receiver.ts';
import { eventually, FOR_EVER, isRunning, NO_GUARD, newAttempt, openFolder, readLog } from './workbench.ts';

const store = openTestStore();
const folder = openFolder();

/** An automation that leaves a file behind when it is executed, and an attempt at a run that was accepted for it. */
async function accepted(slug: string, changes: Partial<AutomationDefinition> = {}) {
  const marker = folder(slug);
  await createAutomation(store, slug, { action: command('touch', marker), ...changes });
  const automation = await store.automations.get(slug);
  const run = newAttempt({ automation: slug, automationId: automation?.id ?? '' });
  return { run, wasExecuted: () => existsSync(marker) };
}

const workFolders = openWorkFolders(() => undefined);
afterAll(() => workFolders.close());

const ACTIONS = openActions({
  workspaces: openWorkspaces({ REPOSITORY_CACHE_BYTES: 0 }, {}, 'worker-7', () => undefined),
  config: { version: '1.2.3-test' },
  environment: { PATH: process.env['PATH'], TOKEN: 'passed-on-secret' },
  workFolders,
  spending: { add: async () => 0, pause: async () => undefined },
});

async function execute(
  run: RunAttempt,
  signal = new AbortController().signal,
  defaultTimeoutMs = 25_000,
  lease = FOR_EVER,
  actions: Actions = ACTIONS,
) {
  const dependencies = {
    runLogs: store.runLogs,
    artifacts: store.artifacts,
    logger: createLogger('silent', 'worker'),
    guard: NO_GUARD,
    actions,
    defaultTimeoutMs,
    retentionSeconds: 60,
    artifactLimitBytes: 1000,
  };
  const stored = await store.automations.get(run.automation);
  const automation = stored && { ...stored, signingSecrets: [stored.signingSecret ?? ''] };
  return executeRun(dependencies, run, signal, lease, automation);
}

test('an enabled automation is executed, and the log says by whom and how it ended', async () => {
  const { run, wasExecuted } = await accepted('plain');
  expect(await execute({ ...run, attempt: 2 })).toMatchObject({ outcome: { status: 'succeeded' } });
  expect(wasExecuted()).toBe(true);
  expect((await readLog(store, run.id)).notes).toBe(
    'Attempt 2 starts on worker worker-7.\nAttempt 2 ended: The command exited with code 0.\n',
  );
});

test('a URL is delivered to with the secret that was shown when the automation was created', async () => {
  const receiver = await startReceiver(answerStatus(204));
  const { run } = await accepted('forward', { action: { type: 'http', url: receiver.url } });
  expect(await execute(run)).toMatchObject({ outcome: { status: 'succeeded', httpStatus: 204 } });
  const [{ headers, body }] = receiver.requests as [Received];
  expect(headers['user-agent']).toBe('orc/1.2.3-test');
  const { signingSecret = '' } = (await store.automations.get('forward')) ?? {};
  expect(new Webhook(signingSecret).verify(body, headers as Record<string, string>)).toEqual({});
});

test('a run whose automation was disabled meanwhile is cancelled and not executed', async () => {
  const { run, wasExecuted } = await accepted('disabled');
  await store.automations.setEnabled('disabled', false);
  const message = 'The automation was disabled before the run was executed.';
  expect(await execute(run)).toEqual({
    outcome: { status: 'cancelled', reason: 'automation_disabled', message },
    mayRetry: false,
  });
  expect(wasExecuted()).toBe(false);
  expect((await readLog(store, run.id)).notes).toContain(message);
});

const DELETED = {
  outcome: {
    status: 'cancelled',
    reason: 'automation_deleted',
    message: 'The automation was deleted before the run was executed.',
  },
  mayRetry: false,
};

test('a run whose automation was deleted meanwhile is cancelled and not executed', async () => {
  const { run, wasExecuted } = await accepted('deleted');
  await store.automations.delete('deleted');
  expect(await execute(run)).toEqual(DELETED);
  expect(wasExecuted()).toBe(false);
});

test('a run never starts another automation that was given the same slug', async () => {
  const { run } = await accepted('recreated');
  await store.automations.delete('recreated');
  const { wasExecuted } = await accepted('recreated');
  expect(await execute(run)).toEqual(DELETED);
  expect(wasExecuted()).toBe(false);
});

test('a run that must not be repeated fails when its worker died', async () => {
  const { run, wasExecuted } = await accepted('once', { onWorkerLoss: 'fail' });
  const message = 'The worker died while executing the run, and the run must not be repeated.';
  expect(await execute({ ...run, attempt: 2, workersLost: 1 })).toEqual({
    outcome: { status: 'failed', reason: 'worker_lost', message },
    mayRetry: false,
  });
  expect(wasExecuted()).toBe(false);
});

test('a run that may be repeated is executed again when its worker died, but not after the third', async () => {
  const { run, wasExecuted } = await accepted('again', { onWorkerLoss: 'rerun' });
  expect(await execute({ ...run, attempt: 4, workersLost: 3 })).toEqual({
    outcome: {
      status: 'failed',
      reason: 'worker_lost',
      message: '3 workers died while executing the run.',
    },
    mayRetry: false,
  });
  expect(wasExecuted()).toBe(false);
  expect(await execute({ ...run, attempt: 3, workersLost: 2 })).toMatchObject({
    outcome: { status: 'succeeded' },
  });
  expect(wasExecuted()).toBe(true);
});

test("an automation's own time limit wins over the worker's", async () => {
  const action = command('sleep', '1000');
  const own = await accepted('own-limit', { action, timeoutMs: 300 });
  const none = await accepted('no-limit', { action });
  expect(await execute(own.run, undefined, 1e6)).toMatchObject({
    outcome: { status: 'timed_out', message: 'The command took longer than 300 ms and was ended.' },
  });
  expect(await execute(none.run, undefined, 400)).toMatchObject({
    outcome: { status: 'timed_out', message: 'The command took longer than 400 ms and was ended.' },
  });
});

test('a command that cannot be started is a failure with its reason', async () => {
  const { run } = await accepted('missing', { action: command('no-such-program') });
  expect(await execute(run)).toMatchObject({ outcome: { status: 'failed', reason: 'not_started' } });
  expect((await readLog(store, run.id)).notes).toContain('spawn no-such-program ENOENT');
});

/** Executes a command that never ends, aborts it, and returns the result when its whole process group is gone. */
async function abort(slug: string, reason: string, changes: Partial<AutomationDefinition> = {}) {
  const action = command('sh', '-c', '(trap "" TERM; exec sleep 1000) & echo $! $$; wait');
  const { run } = await accepted(slug, { action, ...changes });
  const controller = new AbortController();
  const executing = execute(run, controller.signal);
  const pids = async () => (await readLog(store, run.id)).stdout.trim().split(' ').map(Number);
  await eventually(pids).toHaveLength(2);
  controller.abort(reason);
  const result = await executing;
  for (const pid of await pids()) await eventually(() => isRunning(pid)).toBe(false);
  return { result, ...(await readLog(store, run.id)) };
}

test('a run in progress when the worker shuts down is interrupted, and its process group ends', async () => {
  const { result, notes } = await abort('shutdown', SHUTTING_DOWN);
  expect(result).toBe('interrupted');
  expect(notes).toContain('Attempt 1 was interrupted: shutting down.');
  expect(notes).not.toContain('ended');
});

test('a run that must not be repeated fails when the worker shuts down, and its process group ends', async () => {
  const { result } = await abort('shutdown-once', SHUTTING_DOWN, { onWorkerLoss: 'fail' });
  const message = 'The worker shut down before the run had ended, and the run must not be repeated.';
  expect(result).toEqual({ outcome: { status: 'failed', reason: 'worker_lost', message }, mayRetry: false });
});

test.each(['rerun', 'fail'] as const)(
  'a run whose lock was lost is left to whoever holds it now (%s)',
  async (onWorkerLoss) => {
    const { result, notes } = await abort(`lock-lost-${onWorkerLoss}`, LOCK_LOST, { onWorkerLoss });
    expect(result).toBe('interrupted');
    expect(notes).toContain('Attempt 1 was interrupted: lock lost.');
  },
);

test.each(['rerun', 'fail'] as const)(
  'a run that an operator cancels ends, with its process group, as cancelled (%s)',
  async (onWorkerLoss) => {
    const { result, notes } = await abort(`cancel-${onWorkerLoss}`, CANCELLED, { onWorkerLoss, attempts: 3 });
    const message = 'An operator cancelled the run.';
    expect(result).toEqual({
      outcome: { status: 'cancelled', reason: 'cancelled_by_operator', message },
      mayRetry: false,
    });
    expect(notes).toContain(`Attempt 1 ended: ${message}`);
  },
);

test('a run that is cancelled before its command starts does not start it', async () => {
  const { run, wasExecuted } = await accepted('cancelled-early');
  expect(await execute(run, AbortSignal.abort(CANCELLED))).toMatchObject({
    outcome: { reason: 'cancelled_by_operator' },
  });
  expect(wasExecuted()).toBe(false);
});

/** Actions of which none ever ends, whatever its signal says. */
const stuck = (begin: (log: OutputLog) => void = () => undefined): Actions => ({
  perform: (_, { log }) => new Promise(() => begin(log)),
  secretsOf: () => [],
});

test('an attempt settles at its time limit, on cancel and on shutdown though its action never does', async () => {
  const settle = async (slug: string, reason?: string, changes: Partial<AutomationDefinition> = {}) => {
    const { run } = await accepted(slug, { timeoutMs: reason ? 1e6 : 100, ...changes });
    const controller = new AbortController();
    const actions = stuck(() => reason && controller.abort(reason));
    const result = await execute(run, controller.signal, undefined, undefined, actions);
    return result === 'interrupted' ? result : result.outcome;
  };
  const [timedOut, cancelled, shutDown, shutDownOnce, lost] = await Promise.all([
    settle('stuck'),
    settle('stuck-cancelled', CANCELLED),
    settle('stuck-shut-down', SHUTTING_DOWN),
    settle('stuck-once', SHUTTING_DOWN, { onWorkerLoss: 'fail' }),
    settle('stuck-lost', LOCK_LOST),
  ]);
  const message = 'The attempt took longer than 100 ms and was ended.';
  expect(timedOut).toEqual({ status: 'timed_out', reason: 'timeout', message });
  expect(cancelled).toMatchObject({ reason: 'cancelled_by_operator' });
  expect([shutDown, lost]).toEqual(['interrupted', 'interrupted']);
  expect(shutDownOnce).toMatchObject({ reason: 'worker_lost' });
});

test('what an attempt leaves is removed before its run ends, and changes nothing about how it ended', async () => {
  const { run } = await accepted('leaves', { timeoutMs: 100 });
  let isRemoved = false;
  const actions: Actions = {
    perform: async (_, { tidyUp }) => {
      // Longer than the attempt, and any attempt that must end, may take.
      const removal = new Promise((resolve) => setTimeout(resolve, 7000));
      tidyUp(removal.then(() => (isRemoved = true)));
      return { outcome: { status: 'succeeded', reason: 'exit_code', message: 'Done.' }, mayRetry: false };
    },
    secretsOf: () => [],
  };
  const result = await execute(run, undefined, undefined, undefined, actions);
  expect([result, isRemoved]).toMatchObject([{ outcome: { status: 'succeeded' } }, true]);
});

test('a run that must end early does not wait until all is removed', async () => {
  const { run } = await accepted('leaves-early');
  const controller = new AbortController();
  const actions: Actions = {
    perform: async (_, { tidyUp }) => {
      tidyUp(new Promise(() => controller.abort(SHUTTING_DOWN)));
      return { outcome: { status: 'succeeded', reason: 'exit_code', message: 'Done.' }, mayRetry: false };
    },
    secretsOf: () => [],
  };
  const result = await execute(run, controller.signal, undefined, undefined, actions);
  expect(result).toMatchObject({ outcome: { status: 'succeeded' } });
});

test('what an action prints after its attempt has settled is not in the log', async () => {
  const { run } = await accepted('talks-on', { timeoutMs: 100 });
  let log: OutputLog | undefined;
  const actions = stuck((its) => {
    log = its;
  });
  await execute(run, undefined, undefined, undefined, actions);
  log?.write('stdout', Buffer.from('too late'));
  log?.note('too late');
  await log?.flush();
  const { stdout, notes } = await readLog(store, run.id);
  expect([stdout, notes]).toEqual(['', expect.not.stringContaining('too late')]);
});

test('values of stored variables and of those passed on are hidden in the log of the run', async () => {
  const action = {
    ...(command('sh', '-c', 'echo "$STORED $TOKEN $SHORT"; printf "$KEY" >&2') as CommandAction),
    env: { STORED: 'stored-secret', SHORT: 'visible', KEY: 'first line\nsecond line\n-\n' },
    passEnv: ['TOKEN'],
  };
  const { run } = await accepted('prints', { action });
  await execute(run);
  const { stdout, stderr } = await readLog(store, run.id);
  expect([stdout, stderr]).toEqual(['*** *** visible\n', '***\n***\n-\n']);
});

test('a value that a command prints in two pieces is hidden', async () => {
  const gate = folder('pieces');
  const source = `printf passed-on; while [ ! -e "$1" ]; do sleep 0.02; done; printf -- -secret; printf 'and passed-o'`;
  const action = {
    ...(command('sh', '-c', source, 'sh', gate) as CommandAction),
    passEnv: ['TOKEN'],
  };
  const { run } = await accepted('pieces', { action });
  const executing = execute(run);
  await eventually(async () => (await readLog(store, run.id)).notes).toContain('starts');
  writeFileSync(gate, '');
  await executing;
  // Of the end it cannot be known that it is not the beginning of the value.
  expect((await readLog(store, run.id)).stdout).toBe('***and ***');
});

test('the signing secret, the values of the query and all but the first segment of the path are hidden in what a receiver answers', async () => {
  let secret = '';
  const receiver = await startReceiver((response, request) => {
    response.writeHead(200, 'got query-token', { 'x-seen': secret });
    response.end(`${request.url} ${secret} ${secret.slice('whsec_'.length)}`);
  });
  const action = {
    type: 'http',
    url: `${receiver.url}/hook/T012/path-token?id=7&token=query-token`,
  } as const;
  const { run } = await accepted('echoes', { action });
  secret = (await store.automations.get('echoes'))?.signingSecret ?? '';
  await execute(run);
  const { stdout, notes } = await readLog(store, run.id);
  expect(stdout).toBe('/hook/***?id=7&token=*** whsec_*** ***');
  expect(notes).toContain('HTTP 200 got ***\nx-seen: whsec_***\n');
});

test('what is said of an attempt names no secret either', async () => {
  const actions: Actions = {
    perform: async () => {
      throw new Error('cannot use passed-on-secret');
    },
    secretsOf: ACTIONS.secretsOf,
  };
  const action = { ...(command('true') as CommandAction), passEnv: ['TOKEN'] };
  const { run } = await accepted('says', { action });
  expect(await execute(run, undefined, undefined, undefined, actions)).toMatchObject({
    outcome: { reason: 'worker_error', message: 'The worker could not execute the run: cannot use ***.' },
  });
});

test('a run whose lease has ended before its command starts is not started', async () => {
  const { run, wasExecuted } = await accepted('thawed');
  expect(await execute(run, undefined, undefined, { endsAt: Date.now() })).toBe('interrupted');
  expect(wasExecuted()).toBe(false);
});

test('a command that ends after the lease of its run has no outcome, as others may have the run by then', async () => {
  const { run } = await accepted('late', { action: command('sh', '-c', 'sleep 2; kill -9 $$') });
  const lease = { endsAt: Date.now() + 1000 };
  expect(await execute(run, undefined, undefined, lease)).toBe('interrupted');
  expect((await readLog(store, run.id)).notes).toContain('Attempt 1 was interrupted: lock lost.');
});

const RESULT = `printf '{"token":"passed-on-secret"}' > "$ORC_RESULT_FILE"`;

/** Executes a shell command that knows a secret. */
async function executeShell(slug: string, source: string, changes: Partial<RunAttempt> = {}) {
  const action = { ...(command('sh', '-c', source) as CommandAction), passEnv: ['TOKEN'] };
  const { run } = await accepted(slug, { action });
  return { run, result: await execute({ ...run, ...changes }) };
}

test('the last line of what a failed attempt printed is kept, without secrets and control characters', async () => {
  const source = 'echo out; echo first >&2; printf "\\033[31mno table for $TOKEN\\007\\n" >&2; exit 3';
  const { result } = await executeShell('says-why', source);
  expect(result).toMatchObject({
    outcome: { message: 'The command exited with code 3.', detail: 'no table for ***\\u0007' },
  });
});

test('without standard error, it is the last line of standard output', async () => {
  const { result } = await executeShell('says-why-on-stdout', 'echo one; echo two; exit 1');
  expect(result).toMatchObject({ outcome: { detail: 'two' } });
});

test('an attempt that succeeds or prints nothing has no such line', async () => {
  const outcomes = [await executeShell('well', 'echo fine'), await executeShell('silent', 'exit 1')];
  for (const { result } of outcomes) expect(result).not.toHaveProperty('outcome.detail');
});

test('a result is kept without secrets, with its size', async () => {
  const { result } = await executeShell('tells', RESULT);
  expect(result).toMatchObject({
    outcome: { status: 'succeeded', resultBytes: 15 },
    result: '{"token":"***"}',
  });
});

test('an attempt that another follows has no result', async () => {
  const { result } = await executeShell('retried', `${RESULT}; exit 1`, { isLast: false });
  expect(result).toEqual({
    outcome: {
      status: 'failed',
      reason: 'exit_code',
      message: 'The command exited with code 1.',
      exitCode: 1,
    },
    mayRetry: true,
  });
  const { result: last } = await executeShell('not-retried', `${RESULT}; exit 1`);
  expect(last).toMatchObject({ outcome: { status: 'failed' }, result: '{"token":"***"}' });
});
