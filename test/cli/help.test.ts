import { expect, test } from 'vitest';
import { runOrc } from '../support/orc.ts';
import { readProjectFile } from '../support/repository.ts';

/** Every command, and what its help must mention: its arguments, its options and its subcommands. */
const HELP: Record<string, string[]> = {
  '': [
    'local',
    'api',
    'worker',
    'automations',
    'apply',
    'export',
    'runs',
    'console',
    'operators',
    'audit',
    'status',
    'doctor',
    'completion',
  ],
  local: ['Usage: orc local'],
  api: ['Usage: orc api'],
  worker: ['Usage: orc worker'],
  console: ['Usage: orc console', 'CONSOLE_URL'],
  operators: ['add', 'link', 'list', 'sessions', 'remove'],
  'operators add': ['<name>', '--role', '15 minutes', '--json'],
  'operators link': ['<name>', '--json'],
  'operators list': ['--json'],
  'operators sessions': ['<name>', '--end', '--json'],
  'operators remove': ['<name>', '--json'],
  audit: ['--since', '--limit', '--json'],
  automations: [
    'create',
    'set',
    'list',
    'show',
    'enable',
    'disable',
    'delete',
    'rotate-key',
    'rotate-secret',
  ],
  'automations create': [
    ...[
      '<slug>',
      '[command...]',
      '--url',
      '--name',
      '--disabled',
      '--timeout',
      '--attempts',
      '--concurrency',
    ],
    ...['--rate', '--cwd', '--env', '--pass-env', '--on-worker-loss', '--on-end', '--on-failure'],
    ...['--quiet', '--json', 'Examples:'],
  ],
  'automations set': ['<slug>', '[command...]', '--unset', '--url', '--timeout', '--rate', '--env', '--json'],
  'automations list': ['--json'],
  'automations show': ['<slug>', '--json'],
  'automations enable': ['<slug>', '--json'],
  'automations disable': ['<slug>', '--json'],
  'automations pause': ['<slug>', '--json'],
  'automations resume': ['<slug>', '--json'],
  'automations delete': ['<slug>', '--json'],
  'automations rotate-key': ['<slug>', '--grace', '24h', '--quiet', '--json'],
  'automations rotate-secret': ['<slug>', '--grace', '24h', '--quiet', '--json'],
  trigger: [
    '<slug>',
    '--data',
    '--wait',
    '--follow',
    '--timeout',
    '--idempotency-key',
    '--json',
    '5 not ended',
  ],
  runs: ['list', 'show', 'logs'],
  'runs list': [
    ...['--automation', '--status', 'queued, running', '--failed', '--since', '--until', '--limit', '--json'],
    'local time',
  ],
  'runs show': ['[runId]', '--last', '--json'],
  'runs logs': ['[runId]', '--last', '--follow', '--json'],
  'runs watch': ['[runId]', '--last', '--timeout', '--json', '5 not ended'],
  'runs cancel': ['--automation', '--yes', '[runId]', '--last', '--json'],
  'runs retry': [
    '--failed',
    '--since',
    '--yes',
    '[runId]',
    '--last',
    '--wait',
    '--timeout',
    '--json',
    '5 not ended',
  ],
  'runs artifacts': ['[runId]', '--last', '--download', '--json'],
  'runs payload': ['[runId]', '--last', '--json'],
  status: ['--json'],
  doctor: ['--json', 'problem'],
  apply: ['--file', '--dry-run', '--prune', '--keys-dir', '--yes', '--json', 'automations.schema.json'],
  export: ['--json'],
  completion: ['<shell>', 'bash', 'zsh', 'fish'],
};

test.each(Object.entries(HELP))('orc %s --help works in any environment', async (command, mentioned) => {
  const args = command.split(' ').filter((word) => word !== '');
  const { code, stdout, stderr } = await runOrc([...args, '--help'], { env: { PORT: 'wrong' } });
  expect([code, stderr]).toEqual([0, '']);
  const words = stdout.replace(/\s+/g, ' ');
  for (const text of [`Usage: ${['orc', ...args].join(' ')}`, ...mentioned]) expect(words).toContain(text);
  expect(stdout).not.toContain('\u001b');
  if (['automations', 'operators', 'runs'].includes(command)) return;
  expect(stdout).toMatch(/^Exit codes: .*\b0 [\s\S]*\b1 [\s\S]*\b2 /m);
  const examples = stdout.match(/^ {2}\$ .*\borc .*$/gm) ?? [];
  expect(examples.length).toBeGreaterThan(0);
  // What an example shows is what this command has.
  for (const option of examples.join(' ').match(/ --[a-z-]+(?= |$)/g) ?? []) {
    if (!command.startsWith('automations ') || option !== ' --format') expect(stdout).toContain(`${option} `);
  }
});

test.each([
  [[], 'Usage: orc'],
  [['automations'], 'Usage: orc automations'],
  [['runs'], 'Usage: orc runs'],
  [['wroker'], "unknown command 'wroker'"],
  [['automations', 'make'], "unknown command 'make'"],
  [['automations', 'show'], "missing required argument 'slug'"],
  [['runs', 'show', 'a', 'b'], 'too many arguments'],
  [['automations', 'rotate-key', 'x', '--force'], "unknown option '--force'"],
  [['runs', 'logs', '--tail', '5', 'x'], "unknown option '--tail'"],
])('orc %j is a usage error on standard error', async (args, sentence) => {
  const { code, stdout, stderr } = await runOrc(args);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain(sentence);
  expect(stderr).toMatch(/--help/);
});

test('orc --version prints the version of the package', async () => {
  const { version } = JSON.parse(readProjectFile('package.json')) as { version: string };
  expect(await runOrc(['--version'])).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: '' });
});
