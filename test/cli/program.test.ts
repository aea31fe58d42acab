import { expect, test } from 'vitest';
import { runOrc } from '../support/orc.ts';
import { openTestStore } from '../support/store.ts';

const { env } = openTestStore();

test.each([
  [
    'an unknown option',
    ['runs', 'list', '--json', '--tail'],
    env,
    2,
    'usage_error',
    "unknown option '--tail'",
  ],
  ['an unknown command', ['wroker', '--json'], env, 2, 'usage_error', "unknown command 'wroker'"],
  ['a missing command', ['runs', '--json'], env, 2, 'usage_error', 'unknown option'],
  [
    'a missing argument',
    ['automations', 'show', '--json'],
    env,
    2,
    'usage_error',
    "missing required argument 'slug'",
  ],
  [
    'a wrong value',
    ['runs', 'list', '--json', '--status', 'x'],
    env,
    2,
    'usage_error',
    "'x' is not a status",
  ],
  ['no such run', ['runs', 'show', '--json', 'run_x'], env, 1, 'not_found', 'There is no run "run_x".'],
  [
    'no such automation',
    ['automations', 'show', '--json', 'x'],
    env,
    1,
    'not_found',
    'There is no automation "x".',
  ],
  [
    'no Redis',
    ['status', '--json'],
    { REDIS_URL: 'redis://127.0.0.1:1' },
    1,
    'redis_unavailable',
    'cannot be used',
  ],
  ['a wrong environment', ['status', '--json'], { PORT: 'x' }, 1, 'invalid_environment', 'PORT'],
])(
  'with --json, %s is one line of JSON on standard error',
  async (_, args, environment, code, error, message) => {
    const failed = await runOrc(args, { env: environment });
    expect([failed.code, failed.stdout]).toEqual([code, '']);
    expect(failed.stderr).toMatch(/^\{.*\}\n$/);
    expect(JSON.parse(failed.stderr)).toEqual({
      error,
      message: expect.stringContaining(message),
      hint: expect.stringMatching(/orc |Check that/),
    });
  },
);

test.each([
  [['operators', 'add', 'ada'], 'orc operators add'],
  [['runs', 'lst'], 'orc runs'],
  [['rnus'], 'orc'],
])('a usage error of %j begins with orc and names the help of its command', async (args, command) => {
  const failed = await runOrc(args, { env });
  expect([failed.code, failed.stderr]).toEqual([
    2,
    expect.stringMatching(new RegExp(`^orc: [\\s\\S]*See \`${command} --help\`\\.\\n$`)),
  ]);
  const json = await runOrc([...args, '--json'], { env });
  expect(JSON.parse(json.stderr).hint).toBe(`See \`${command} --help\`.`);
});

test('what follows -- asks for nothing: it is the command line of another program', async () => {
  const failed = await runOrc(['automations', 'create', 'BAD', '--', 'x', '--json'], { env });
  expect([failed.code, failed.stderr]).toEqual([2, expect.stringMatching(/^orc: 'BAD' is not a slug/)]);
});
