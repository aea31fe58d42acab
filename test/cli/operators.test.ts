import { expect, test } from 'vitest';
import { runOrc } from '../support/orc.ts';
import { newPrefix, openTestStore } from '../support/store.ts';

const { env } = openTestStore();
const orc = (...args: string[]) => runOrc(args, { env });

test('an operator is added with a link that logs in once, listed, and removed', async () => {
  expect((await orc('operators', 'list')).stdout).toContain('Add one: orc operators add <name> --role admin');
  const added = await orc('operators', 'add', 'ada@example.com', '--role', 'admin');
  expect(added).toMatchObject({ code: 0, stderr: '' });
  expect(added.stdout).toMatch(
    /^The operator ada@example\.com is added, as admin\.\nThis link logs ada@example\.com in once, within 15 minutes:\n\n {2}http:\/\/localhost:3001\/login\/[\w-]{43}\n$/,
  );
  expect((await orc('operators', 'list')).stdout).toMatch(
    /^NAME +ROLE +SESSIONS +ADDED\nada@example\.com +admin +0 +\d{4}-/,
  );
  expect((await orc('operators', 'remove', 'ada@example.com')).stdout).toBe(
    'The operator ada@example.com is removed.\n',
  );
  expect((await orc('operators', 'remove', 'ada@example.com')).stderr).toBe(
    'orc: There is no operator ada@example.com. See: orc operators list\n',
  );
});

test('the link leads to CONSOLE_URL', async () => {
  const changed = { ...env, CONSOLE_URL: 'https://console.example.com/' };
  const { stdout } = await runOrc(['operators', 'add', 'bob', '--role', 'viewer', '--json'], {
    env: changed,
  });
  expect(JSON.parse(stdout)).toEqual({
    name: 'bob',
    link: expect.stringMatching(/^https:\/\/console\.example\.com\/login\/[\w-]{43}$/),
    expiresAt: expect.any(String),
  });
});

test('adding a name twice changes nothing and says how to log in', async () => {
  await orc('operators', 'add', 'eve', '--role', 'viewer');
  const again = await orc('operators', 'add', 'eve', '--role', 'admin');
  expect(again).toMatchObject({ code: 1, stdout: '' });
  expect(again.stderr).toBe(
    'orc: The operator eve exists already and was not changed. A new login link: orc operators link eve\n',
  );
  expect(JSON.parse((await orc('operators', 'list', '--json')).stdout)).toContainEqual(
    expect.objectContaining({ name: 'eve', role: 'viewer' }),
  );
});

test('sessions are listed, and ended', async () => {
  const store = openTestStore(newPrefix());
  const other = { env: store.env };
  const { stdout } = await runOrc(['operators', 'add', 'zoe', '--role', 'viewer', '--json'], other);
  const token = new URL(JSON.parse(stdout).link).pathname.replace('/login/', '');
  const session = await store.operators.login(token, { address: '10.0.0.7', userAgent: 'Firefox' });
  const listed = JSON.parse((await runOrc(['operators', 'sessions', 'zoe', '--json'], other)).stdout);
  expect(listed).toEqual([
    expect.objectContaining({ address: '10.0.0.7', userAgent: 'Firefox', id: expect.any(String) }),
  ]);
  expect((await runOrc(['operators', 'sessions', 'zoe', '--end'], other)).stdout).toBe(
    '1 session of zoe is ended.\n',
  );
  expect(await store.operators.ofSession(session?.token ?? '', true)).toBeUndefined();
  expect((await runOrc(['operators', 'sessions', 'zoe'], other)).stdout).toBe('zoe is not logged in.\n');
});

test.each([
  [['operators', 'add', 'ada'], '--role'],
  [['operators', 'add', 'ada', '--role', 'king'], 'viewer, admin'],
  [['operators', 'add', 'ada lovelace', '--role', 'admin'], 'alice@example.com'],
  [['audit', '--limit', '0'], '--limit must be'],
  [['audit', '--since', 'yesterday'], 'is not a time'],
])('%j is a usage error', async (args, message) => {
  const { code, stdout, stderr } = await orc(...args);
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain(message);
});

test('what the command line changes is in orc audit, with the user and the machine', async () => {
  const other = { env: openTestStore(newPrefix()).env };
  expect((await runOrc(['audit'], other)).stdout).toBe('Nothing was changed.\n');
  await runOrc(['automations', 'create', 'deploy', '--env', 'TOKEN=hunter2-hunter2', '--', 'true'], other);
  await runOrc(['automations', 'set', 'deploy', '--attempts', '3'], other);
  await runOrc(['automations', 'rotate-key', 'deploy', '--grace', '0'], other);
  await runOrc(['trigger', 'deploy'], other);
  await runOrc(['automations', 'delete', 'deploy'], other);
  const { stdout } = await runOrc(['audit'], other);
  expect(
    stdout
      .replace(/^\d{4}-\S+ +\S+@\S+ +/gm, '')
      .replace(/run_\S+/, 'run_x')
      .replace(/ {2,}/g, '  '),
  ).toBe(
    [
      'WHEN  WHO  WHAT  DETAILS',
      'deleted automation deploy  command: ["true"], env.TOKEN, attempts: 3',
      'started run run_x  of deploy',
      'issued a new key for automation deploy  the old one is invalid',
      'changed automation deploy  attempts: default → 3',
      'created automation deploy  command: ["true"], env.TOKEN',
      '',
    ].join('\n'),
  );
  const entries = JSON.parse(
    (await runOrc(['audit', '--json', '--since', '1h', '--limit', '2'], other)).stdout,
  );
  expect(entries).toHaveLength(2);
  expect(entries[0]).toMatchObject({
    action: 'automation.delete',
    subject: 'deploy',
    by: { host: expect.any(String) },
  });
});
