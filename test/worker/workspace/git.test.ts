import { expect, test } from 'vitest';
import { openGit } from '../../../src/worker/workspace/git.ts';

const { PATH } = process.env;
const { signal } = new AbortController();

test('what git says last is the reason, without its advice', async () => {
  const git = openGit({ PATH }, 'worker-7');
  expect(await git(['ls-remote', 'file:///nowhere'], { signal, credentials: [] })).toMatchObject({
    status: 'failed',
    detail: "fatal: '/nowhere' does not appear to be a git repository",
  });
  expect(await git(['rev-parse', '--verify', 'x'], { signal, gitDir: '/nowhere' })).toMatchObject({
    status: 'failed',
    detail: "fatal: not a git repository: '/nowhere'",
  });
});

test('secrets are hidden before the reason is cut, also those in URLs', async () => {
  const secret = 'canary-0123456789abcdef';
  const git = openGit({ PATH, TOKEN: secret }, 'worker-7');
  for (let length = 250; length <= 300; length += 10) {
    const filler = 'x'.repeat(length);
    // Git repeats what is no command.
    for (const word of [`${filler}${secret}`, `git://ada:canary${filler}@${filler}`]) {
      const result = await git([word], { signal, credentials: ['TOKEN'] });
      expect(result).toMatchObject({ status: 'failed', detail: expect.stringMatching(/^git: '/) });
      expect(JSON.stringify(result)).not.toContain('canary');
    }
  }
});
