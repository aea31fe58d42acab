import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import type { AgentAction } from '../../src/core/actions/agent.ts';
import { openAgents } from '../../src/worker/actions/agent/agent.ts';
import { openWorkspaces } from '../../src/worker/workspace/open-workspaces.ts';
import { scriptedAgent } from '../support/agents.ts';
import { listProcesses } from '../support/machine.ts';
import { startWorkerProcess } from '../support/orc-process.ts';
import {
  type AttemptOptions,
  acceptRuns,
  endProcess,
  eventually,
  openFolder,
  openWorkbench,
} from './workbench.ts';
import { createRepository, git, type TestRepository } from './workspace/repositories.ts';

const { store, attempt, workFolders } = openWorkbench();
const folder = openFolder();
const environment = { PATH: process.env['PATH'], HOME: '/home/of/the/worker', GIT_PASSWORD: 'of the worker' };
const workspaces = openWorkspaces(
  { WORKSPACE_DIR: folder('cache'), REPOSITORY_CACHE_BYTES: 1e9 },
  environment,
  'worker-7',
  () => undefined,
);
afterAll(() => workspaces.close());

const agents = openAgents({
  config: { version: '1.2.3-test' },
  environment,
  workFolders,
  workspaces,
  spending: { add: async () => 0, pause: async () => undefined },
});

function run(action: AgentAction, options: AttemptOptions = {}) {
  return attempt((context) => agents.perform(action, context), options);
}

/** An agent that runs shell commands in a checkout, one in each turn. */
function shellAgent(repository: TestRepository, commands: string[], changes: Partial<AgentAction> = {}) {
  const turns = commands.map((command) => [
    { ask: { title: 'work', kind: 'execute' as const, run: command } },
  ]);
  return scriptedAgent(turns, { repo: repository.url, ref: 'main', ...changes });
}

async function outcomeOf(made: Awaited<ReturnType<typeof run>>) {
  if (made.result === 'interrupted') throw new Error(made.result);
  return made.result;
}

function patchIn({ artifacts }: Awaited<ReturnType<typeof run>>): string {
  const index = artifacts.list().artifacts.findIndex(({ name }) => name === 'changes.patch');
  return artifacts.data()[index]?.toString() ?? '';
}

const CHECK = { check: 'sh check.sh', protect: ['check.sh'], push: 'orc/{runId}' };
const FILES = { 'check.sh': 'grep -q fixed code.txt\n', 'code.txt': 'broken\n' };

test('an agent fixes what the check asks for, and the worker pushes exactly what was checked', async () => {
  const repository = createRepository(folder('fixed'), FILES);
  const base = git(repository.bare, 'rev-parse', 'main');
  const made = await run(
    shellAgent(repository, ['echo almost > code.txt', 'echo fixed > code.txt; git commit --all -qm mine'], {
      ...CHECK,
      check: 'sh check.sh && touch left-by-the-check',
    }),
  );
  const branch = `orc/${made.run.id}`;
  const commit = git(repository.bare, 'rev-parse', branch);
  expect(await outcomeOf(made)).toMatchObject({
    outcome: { status: 'succeeded', reason: 'check_passed', agent: { checks: 2, branch, commit } },
    result: expect.stringContaining(JSON.stringify({ changed: true, branch, commit }).slice(1)),
  });
  expect(git(repository.bare, 'diff', '--name-status', base, branch)).toBe('M\tcode.txt');
  expect(git(repository.bare, 'show', `${branch}:code.txt`)).toBe('fixed');
  expect(patchIn(made)).toContain('-broken\n+fixed\n');
});

test('an agent that edits the protected check does not pass, and its changes are kept but not pushed', async () => {
  const repository = createRepository(folder('judge'), FILES);
  const made = await run(
    shellAgent(repository, ['echo true > check.sh; echo tried > code.txt'], { ...CHECK, checkAttempts: 1 }),
  );
  expect(await outcomeOf(made)).toMatchObject({ outcome: { status: 'failed', reason: 'check_failed' } });
  expect(git(repository.bare, 'branch', '--list')).toBe('* main');
  expect(patchIn(made)).toContain('-broken\n+tried\n');
  expect(patchIn(made)).not.toContain('check.sh');
});

test('an agent that changes nothing has nothing pushed, and the run says so', async () => {
  const repository = createRepository(folder('nothing'));
  const made = await run(shellAgent(repository, ['true'], { push: 'orc/{runId}' }));
  const { outcome, result } = await outcomeOf(made);
  expect(outcome).toMatchObject({
    status: 'succeeded',
    message: expect.stringMatching(/nothing was pushed\.$/),
  });
  expect(JSON.parse(result ?? '')).toMatchObject({ changed: false });
  expect(git(repository.bare, 'branch', '--list')).toBe('* main');
  expect(made.artifacts.list().artifacts).toEqual([]);
});

test('changes that are too large to keep fail the run, unless they are pushed', async () => {
  const repository = createRepository(folder('large'));
  const large = 'seq 1000 > numbers.txt';
  const kept = await run(shellAgent(repository, [large]));
  expect(await outcomeOf(kept)).toMatchObject({ outcome: { reason: 'result_too_large' }, mayRetry: false });
  const pushed = await run(shellAgent(repository, [large], { push: 'orc/{runId}' }));
  expect(await outcomeOf(pushed)).toMatchObject({ outcome: { status: 'succeeded' } });
  expect(git(repository.bare, 'show', `orc/${pushed.run.id}:numbers.txt`)).toMatch(/^1000$/m);
});

test('a caller chooses the ref in the payload; what is no ref is refused before the agent starts', async () => {
  const repository = createRepository(folder('chosen'));
  const commit = repository.commit({ 'release.txt': '' }, 'release');
  const action = shellAgent(repository, ['test -e release.txt || exit 1; echo yes > seen.txt'], {
    refFrom: '/git/ref',
  });
  const payload = (ref: unknown) => ({ run: { payload: Buffer.from(JSON.stringify({ git: { ref } })) } });
  expect(patchIn(await run(action, payload('release')))).toContain('+yes');
  expect(patchIn(await run(action, payload(commit)))).toContain('+yes');
  for (const [ref, words] of [
    ['--upload-pack=touch /tmp/x', /"--upload-pack=touch \/tmp\/x", which is not the name/],
    [7, /is a number, which is not/],
    ['never', /no branch, tag or commit never/],
  ] as const) {
    expect(await outcomeOf(await run(action, payload(ref)))).toMatchObject({
      outcome: { status: 'failed', reason: 'ref_not_found', message: expect.stringMatching(words) },
      mayRetry: false,
    });
  }
});

test('the agent and the check get none of the variables of git, and the workspace is gone afterwards', async () => {
  const repository = createRepository(folder('variables'));
  const seen = folder('variables-seen');
  const made = await run(
    shellAgent(repository, [`env >> ${seen}`], {
      gitEnv: ['GIT_PASSWORD'],
      check: `env >> ${seen}; git config --list >> ${seen}`,
    }),
  );
  expect(await outcomeOf(made)).toMatchObject({ outcome: { status: 'succeeded' } });
  const text = readFileSync(seen, 'utf8');
  expect(text).toContain('ORC_RUN_ID=');
  expect(text).not.toMatch(/of the worker|GIT_PASSWORD|bare\.git/);
  const [worker = ''] = readdirSync(folder('cache/workspaces'));
  expect(readdirSync(folder(`cache/workspaces/${worker}`))).toEqual(['alive']);
});

test('a repository that cannot be reached fails the attempt, which another one may repeat', async () => {
  const repository = { ...createRepository(folder('gone')), url: `file://${folder('never')}` };
  expect(await outcomeOf(await run(shellAgent(repository, ['true'])))).toMatchObject({
    outcome: {
      reason: 'repo_unavailable',
      message: expect.stringMatching(/^The repository cannot be reached: /),
    },
    mayRetry: true,
  });
});

test('an attempt that is cancelled pushes nothing', async () => {
  const repository = createRepository(folder('cancelled'));
  const cancelling = new AbortController();
  const started = folder('cancelled-started');
  const action = shellAgent(repository, ['echo x > x.txt'], {
    push: 'orc/{runId}',
    check: `touch ${started}; sleep 1000`,
  });
  const running = run(action, { signal: cancelling.signal });
  await eventually(() => existsSync(started)).toBe(true);
  cancelling.abort('cancelled');
  expect((await running).result).toBe('interrupted');
  expect(git(repository.bare, 'branch', '--list')).toBe('* main');
});

async function startWorker(WORKSPACE_DIR: string) {
  const worker = await startWorkerProcess({ ...store.env, WORKSPACE_DIR, SHUTDOWN_GRACE_MS: '300' });
  onTestFinished(async () => {
    await worker.stop('SIGKILL');
  });
  return worker;
}

test.each([
  ['its guard removes the checkout', false],
  ['the next worker removes the checkout of one that was killed with its guard', true],
])('when a worker is killed in the middle of a run, %s', async (_, killsGuard) => {
  const name = `killed-${killsGuard}`;
  const repository = createRepository(folder(name));
  const [dir, started] = [folder(`${name}-dir`), folder(`${name}-started`)];
  const stays = `pwd > ${started}.pwd; echo $PPID $$ > ${started}; exec sleep 1000`;
  const action = shellAgent(repository, [stays], { push: 'orc/{runId}' });
  const killed = await startWorker(dir);
  await acceptRuns(store, name, { action, onWorkerLoss: 'fail' });
  await eventually(() => existsSync(started) && readFileSync(started, 'utf8')).toMatch(/\n$/);
  const [agent = 0, command = 0] = readFileSync(started, 'utf8').split(' ').map(Number);
  onTestFinished(() => {
    for (const pid of [agent, command]) endProcess(pid);
  });
  const checkout = readFileSync(`${started}.pwd`, 'utf8').trim();
  expect(readdirSync(checkout)).toEqual(['.git', 'README.md']);
  const [guard] = listProcesses().filter(
    ({ parent, args }) => parent === killed.child.pid && args.includes('guard-process'),
  );
  if (killsGuard) endProcess(guard?.pid ?? 0);
  await killed.stop('SIGKILL');
  if (killsGuard) {
    endProcess(agent);
    expect(existsSync(checkout)).toBe(true);
    await startWorker(dir);
  }
  await eventually(() => existsSync(checkout)).toBe(false);
  // The mirror serves the next attempt.
  expect(readdirSync(join(dir, 'repositories'))).toHaveLength(1);
  expect(git(repository.bare, 'branch', '--list')).toBe('* main');
});
