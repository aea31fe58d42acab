import { writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { runOrc } from '../support/orc.ts';
import { openTestStore } from '../support/store.ts';
import { openFolder } from '../worker/workbench.ts';

const store = openTestStore();
const folder = openFolder();
const orc = (...args: string[]) => runOrc(args, { env: store.env, cwd: folder('.') });

const R = 'file:///r';

const EVERYTHING = [
  ...['--agent', 'opencode acp', '--prompt-file', 'fix.md', '--repo', 'https://github.com/acme/shop.git'],
  ...['--ref', 'main', '--ref-from', '/ref', '--allow', 'read,edit', '--check', 'npm test'],
  ...['--check-attempts', '5', '--protect', 'test', '--protect', 'package.json', '--push', 'orc/{runId}'],
  ...['--git-env', 'GIT_TOKEN', '--pass-env', 'MODEL_KEY', '--env', 'CI=1', '--max-cost', '1.5'],
  ...['--max-cost-per-day', '20', '--wrap', 'sandbox --'],
];

test('create stores every option of an agent, and show, export, apply and set know them', async () => {
  writeFileSync(folder('fix.md'), 'Fix the test.\nBe brief.\n');
  expect(await orc('automations', 'create', 'fix', ...EVERYTHING)).toMatchObject({ code: 0, stderr: '' });
  const action = {
    type: 'agent',
    agent: 'opencode acp',
    prompt: 'Fix the test.\nBe brief.\n',
    repo: 'https://github.com/acme/shop.git',
    ref: 'main',
    refFrom: '/ref',
    allow: ['read', 'edit'],
    check: 'npm test',
    checkAttempts: 5,
    protect: ['test', 'package.json'],
    push: 'orc/{runId}',
    gitEnv: ['GIT_TOKEN'],
    passEnv: ['MODEL_KEY'],
    env: { CI: '1' },
    maxCost: 1.5,
    maxCostPerDay: 20,
    wrap: 'sandbox --',
  };
  expect((await store.automations.get('fix'))?.action).toEqual(action);
  const { stdout: shown } = await orc('automations', 'show', 'fix');
  expect(shown).toMatch(/^agent +opencode acp$/m);
  expect(shown).toMatch(/^prompt +Fix the test\.…$/m);
  expect(shown).toMatch(/^ref +\/ref of the payload, or main$/m);
  expect(shown).toMatch(/^max cost +1\.5 USD per attempt, 20 USD per day, if the agent reports its cost$/m);

  const { stdout: exported } = await orc('export');
  writeFileSync(folder('exported.yaml'), exported);
  expect((await orc('apply', '-f', 'exported.yaml')).stdout).toContain('There is nothing to change.');

  const { stdout: changed } = await orc('automations', 'set', 'fix', '--agent', 'other', '--unset', 'push');
  expect(changed).toContain('agent: opencode acp → other');
  const { push: _, ...others } = action;
  expect((await store.automations.get('fix'))?.action).toEqual({ ...others, agent: 'other' });
});

test('apply takes a prompt from a file beside it', async () => {
  writeFileSync(folder('prompt.md'), 'Do it.');
  writeFileSync(folder('a.yaml'), 'automations: {filed: {agent: x, promptFile: prompt.md}}');
  expect(await orc('apply', '-f', 'a.yaml')).toMatchObject({ code: 0 });
  expect((await store.automations.get('filed'))?.action).toMatchObject({ prompt: 'Do it.' });
  expect((await orc('apply', '-f', 'a.yaml')).stdout).toContain('There is nothing to change.');
  writeFileSync(folder('b.yaml'), 'automations: {filed: {agent: x, promptFile: nowhere.md}}');
  const { code, stderr } = await orc('apply', '-f', 'b.yaml');
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(/filed\.promptFile \S*nowhere\.md cannot be read/),
  ]);
});

test.each([
  ['no prompt', [], '--agent needs a prompt'],
  ['two prompts', ['--prompt', 'x', '--prompt-file', 'y'], '--prompt-file cannot be combined with a prompt'],
  ['an open quote', ['--prompt', 'x', '--wrap', "a 'b"], '--wrap has a quote that is not closed'],
  ['a ref without a repository', ['--prompt', 'x', '--ref', 'a'], '--ref needs a repository'],
  ['attempts without a check', ['--prompt', 'x', '--check-attempts', '2'], '--check-attempts needs a check'],
  ['an unknown kind of tool', ['--prompt', 'x', '--allow', 'read,sudo'], '--allow must be a list of: read'],
  ['no amount', ['--prompt', 'x', '--max-cost', '-1'], '--max-cost must be an amount in USD'],
  ['a folder', ['--prompt', 'x', '--cwd', '/srv'], '--cwd is for commands only'],
  ['an option of git', ['--prompt', 'x', '--repo', R, '--ref', '--x'], '--ref must be a branch'],
  ['a transport that starts programs', ['--prompt', 'x', '--repo', 'ext::sh -c x'], '--repo must be the URL'],
  [
    'a password',
    ['--prompt', 'x', '--repo', 'https://a:s3cret@h/r'],
    '--repo contains a user name or password',
  ],
  ['a wrong branch', ['--prompt', 'x', '--repo', R, '--push', 'a..b'], '--push must be the name of a branch'],
  [
    'a path outside',
    ['--prompt', 'x', '--repo', R, '--check', 'c', '--protect', '../x'],
    '--protect must be',
  ],
  [
    "git's secret for the agent",
    ['--prompt', 'x', '--repo', R, '--git-env', 'T', '--pass-env', 'T'],
    '--git-env names what the agent gets as well: T',
  ],
])('an agent with %s is a usage error', async (_, options, message) => {
  const { code, stderr } = await orc('automations', 'create', 'refused', '--agent', 'x', ...options);
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  expect(stderr).not.toContain('s3cret');
});

test('an agent that becomes a command leaves nothing behind', async () => {
  await orc('automations', 'create', 'changing', '--agent', 'x', '--prompt', 'y', '--env', 'A=1');
  await orc('automations', 'set', 'changing', '--', 'true');
  expect((await store.automations.get('changing'))?.action).toEqual({
    ...{ type: 'command', argv: ['true'], env: {}, passEnv: [] },
  });
});
