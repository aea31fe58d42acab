import { expect, test } from 'vitest';
import {
  isCommitId,
  isWorkspacePath,
  problemOfRepository,
  WHAT_A_REPOSITORY_IS,
} from '../../src/core/git-names.ts';

const COMMIT = '0123456789abcdef0123456789abcdef01234567';

test.each([
  'https://github.com/acme/shop.git',
  'http://127.0.0.1:8080/shop.git',
  'ssh://git@example.com:2222/acme/shop.git',
  'git@github.com:acme/shop.git',
  'git://example.com/shop',
  'file:///srv/git/shop.git',
  '/srv/git/shop.git',
])('%s is the address of a repository', (address) => {
  expect(problemOfRepository(address)).toBeUndefined();
});

test.each([
  ['https://ada:secret@example.com/shop.git', /user name or password.*docs.agents/],
  ['https://token@example.com/shop.git', /user name or password/],
  ['ssh://git:secret@example.com/shop.git', /password/],
  ['https://example.com/shop.git?private_token=secret', /is not the URL/],
  ['https://example.com/shop.git#main', /is not the URL/],
  ['ext::sh -c whoami', /is not the URL/],
  ['--upload-pack=whoami', /is not the URL/],
  ['ssh://-oProxyCommand=whoami/shop', /names no host/],
  ['-oProxyCommand=whoami@example.com:shop', /is not the URL/],
  ['git@example.com:-shop', /is not the URL/],
  ['shop.git', /is not the URL/],
  ['./shop.git', /is not the URL/],
  ['https:///shop.git', /names no host/],
  ['https://example.com/a\nb', /control character/],
])('%s is refused as the address of a repository', (address, problem) => {
  expect(problemOfRepository(address)).toMatch(problem);
  expect(problemOfRepository(address)).not.toMatch(/secret|token@|=whoami/);
});

test('what a repository is can be told', () => {
  expect(problemOfRepository('shop')).toContain(WHAT_A_REPOSITORY_IS);
});

test('a commit is named by its full id', () => {
  expect(isCommitId(COMMIT)).toBe(true);
  expect(isCommitId('a'.repeat(64))).toBe(true);
  for (const text of ['0123456', `${COMMIT}0`, COMMIT.toUpperCase()]) expect(isCommitId(text)).toBe(false);
});

test.each(['test', 'test/', 'a/b.txt', '-rf', 'a\nb', '...'])('%j is a path in a workspace', (path) => {
  expect(isWorkspacePath(path)).toBe(true);
});

test.each(['', '/etc', '..', 'a/../b', './a', 'a//b', '.git', 'a/.GIT/hooks', 'a\0'])(
  '%j is not a path in a workspace',
  (path) => {
    expect(isWorkspacePath(path)).toBe(false);
  },
);
