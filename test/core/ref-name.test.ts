import { expect, test } from 'vitest';
import { branchOf, isRefName } from '../../src/core/ref-name.ts';

test.each(['main', 'refs/heads/main', 'v1.2.3', 'orc/run_0192-a', 'feature/ä', 'a'.repeat(40)])(
  '%s may be a ref',
  (name) => {
    expect(isRefName(name)).toBe(true);
  },
);

test.each([
  ...[
    '',
    '-x',
    '--upload-pack=touch /tmp/x',
    'a b',
    'a..b',
    'a@{1}',
    '@',
    'a~1',
    'a^',
    'a:b',
    'a?',
    'a*',
    'a[b',
  ],
  ...[
    '/a',
    'a/',
    'a//b',
    '.a',
    'a/.b',
    'a.',
    'a.lock',
    'a.lock/b',
    'a\\b',
    'a\n',
    'a\u0000',
    'x'.repeat(251),
  ],
])('%j is no ref', (name) => {
  expect(isRefName(name)).toBe(false);
});

test('a branch may be named after its run and its automation', () => {
  expect(branchOf('orc/{automation}/{runId}', { id: 'run_1', automation: 'fix' })).toBe('orc/fix/run_1');
});
