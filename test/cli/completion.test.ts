import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { delimiter } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, test } from 'vitest';
import { hasCommand } from '../support/machine.ts';
import { runOrc } from '../support/orc.ts';
import { ORC } from '../support/orc-process.ts';
import { createAutomation, openTestStore } from '../support/store.ts';
import { openFolder } from '../worker/workbench.ts';

const store = openTestStore();
const folder = openFolder();
const env = { PATH: [folder('bin'), process.env['PATH']].join(delimiter) };

beforeAll(async () => {
  mkdirSync(folder('bin'));
  writeFileSync(folder('bin/orc'), `#!/bin/sh\nexec '${process.execPath}' '${ORC}' "$@"\n`);
  chmodSync(folder('bin/orc'), 0o755);
  writeFileSync(folder('a file.yaml'), '');
  for (const [name] of SHELLS) {
    writeFileSync(folder(`completion.${name}`), (await runOrc(['completion', name])).stdout);
  }
  for (const slug of ['deploy', 'nightly-report', 'nightly-backup']) await createAutomation(store, slug);
});

/** What a shell offers for the last of these words, in alphabetical order. */
type Complete = (...words: string[]) => Promise<string[]>;

/** @param script ends with a loop that prints one offer a line */
function shell(command: string, args: string[], script: string, changes: NodeJS.ProcessEnv = {}): Complete {
  return async (...words) => {
    const { stdout, stderr } = await promisify(execFile)(
      command,
      [...args, script, command, 'orc', ...words],
      {
        cwd: folder('.'),
        env: { ...env, ...store.env, ...changes },
      },
    );
    expect(stderr).toBe('');
    return stdout
      .split('\n')
      .filter((line) => line !== '')
      .sort();
  };
}

const BASH = `
  source ./completion.bash
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
  complete -p orc >/dev/null
  _orc orc "\${COMP_WORDS[COMP_CWORD]}" "\${COMP_WORDS[COMP_CWORD - 1]}"
  for each in "\${COMPREPLY[@]}"; do echo "$each"; done`;

/** Zsh's own part, which shows the offers in a terminal, is replaced by one that prints them. */
const ZSH = `
  compdef() { :; }
  source ./completion.zsh
  _describe() { local each; for each in "\${(@P)2}"; do echo "\${each%%:*}"; done; }
  _files() { print -l *; }
  words=("$@"); CURRENT=$#
  _orc`;

const FISH = `
  source completion.fish
  for each in (complete --do-complete (string join ' ' -- (string escape -- $argv[2..-2]) $argv[-1]))
    echo (string split \\t -- $each)[1]
  end`;

const SHELLS: [name: string, complete: Complete][] = [
  ['bash', shell('bash', ['--norc', '-c'], BASH)],
  ['zsh', shell('zsh', ['-fc'], ZSH)],
  ['fish', shell('fish', ['--no-config', '-c'], FISH)],
];

describe.each(SHELLS.filter(([name]) => hasCommand(name)))('%s', (name, complete) => {
  test('completes commands and their subcommands', async () => {
    expect(await complete('')).toEqual([
      'api',
      'apply',
      'audit',
      'automations',
      'completion',
      'console',
      'doctor',
      'export',
      'local',
      'operators',
      'runs',
      'status',
      'trigger',
      'worker',
    ]);
    expect(await complete('do')).toEqual(['doctor']);
    expect(await complete('automations', 'r')).toEqual(['resume', 'rotate-key', 'rotate-secret']);
    expect(await complete('completion', 'z')).toEqual(['zsh']);
  });

  test('completes options and the values that are known', async () => {
    expect(await complete('automations', 'create', 'x', '--on-w')).toEqual(['--on-worker-loss']);
    expect(await complete('automations', 'create', 'x', '--on-worker-loss', 'r')).toEqual(['rerun']);
    expect(await complete('runs', 'list', '--status', 'r')).toEqual(['retrying', 'running']);
  });

  test('completes the slugs of automations that exist', async () => {
    expect(await complete('automations', 'show', '')).toEqual(['deploy', 'nightly-backup', 'nightly-report']);
    expect(await complete('automations', 'rotate-key', '--grace', '1h', 'ni')).toEqual([
      'nightly-backup',
      'nightly-report',
    ]);
    expect(await complete('runs', 'list', '--automation', 'd')).toEqual(['deploy']);
    expect(await complete('runs', 'show', '--last', 'd')).toEqual(['deploy']);
    expect(await complete('automations', 'show', 'deploy', '')).toEqual([]);
    expect(await complete('automations', 'create', 'ni')).toEqual([]);
  });

  test('completes the names of files where one is wanted', async () => {
    const found = await complete('apply', '-f', name === 'fish' ? '' : 'a');
    expect(found.map((path) => path.replaceAll('\\', ''))).toContain('a file.yaml');
  });
});

test('bash completes what follows an equals sign', async () => {
  const complete = shell('bash', ['--norc', '-c'], BASH);
  expect(await complete('runs', 'list', '--status', '=', 'q')).toEqual(['queued']);
  expect(await complete('runs', 'list', '--status', '=')).toContain('cancelled');
});

test('without Redis, or with one that does not answer, no slug is offered and nothing is said', async () => {
  for (const REDIS_URL of ['redis://127.0.0.1:1', folder('none.sock'), 'nonsense']) {
    const result = await runOrc(['__complete', '--', 'automations', 'show', ''], { env: { REDIS_URL } });
    expect(result).toEqual({ code: 0, stdout: '', stderr: '' });
  }
});

test('another shell is a usage error', async () => {
  const { code, stdout, stderr } = await runOrc(['completion', 'tcsh']);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain('Allowed choices are bash, zsh, fish');
});

test('what the scripts call is in no help', async () => {
  expect((await runOrc(['--help'])).stdout).not.toContain('__complete');
});
