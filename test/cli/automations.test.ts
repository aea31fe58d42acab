import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { isWellFormedApiKey } from '../../src/core/api-key.ts';
import { runOrc } from '../support/orc.ts';
import { ORC } from '../support/orc-process.ts';
import { createAutomation, openTestStore } from '../support/store.ts';
import { acceptRuns } from '../worker/workbench.ts';

const store = openTestStore();
const { env } = store;

const orc = (...args: string[]) => runOrc(['automations', ...args], { env });

const statusWith = async (slug: string, key: string) =>
  (await store.automations.authenticate(slug, key)).status;

/** The only key in a text. */
function keyIn(text: string): string {
  const keys = text.match(/orc_[0-9A-Za-z]{49}/g) ?? [];
  expect(new Set(keys).size).toBe(1);
  return keys[0] ?? '';
}

test('create stores a command exactly as it was typed after --', async () => {
  const { code, stderr } = await orc(
    'create',
    'nightly-report',
    ...['--name', 'Nightly report', '--timeout', '10m', '--attempts', '3', '--concurrency', '2'],
    ...['--rate', '60/m', '--cwd', '/srv/app', '--env', 'A=1=2', '--env', 'B=', '--pass-env', 'TOKEN'],
    ...['--on-worker-loss', 'fail', '--disabled'],
    ...['--', 'python3', '-u', 'report.py', '--json', '$(id)', 'two words', ''],
  );
  expect([code, stderr]).toEqual([0, '']);
  expect(await store.automations.get('nightly-report')).toMatchObject({
    slug: 'nightly-report',
    name: 'Nightly report',
    enabled: false,
    action: {
      type: 'command',
      argv: ['python3', '-u', 'report.py', '--json', '$(id)', 'two words', ''],
      cwd: '/srv/app',
      env: { A: '1=2', B: '' },
      passEnv: ['TOKEN'],
    },
    timeoutMs: 600_000,
    attempts: 3,
    concurrency: 2,
    rate: { limit: 60, windowMs: 60_000 },
    onWorkerLoss: 'fail',
  });
});

test('create shows a key that works, once, in a curl line that can be pasted', async () => {
  const { stdout } = await runOrc(['automations', 'create', 'shown', '--', 'true'], {
    env: { ...env, PUBLIC_URL: 'https://orc.example.com/' },
  });
  const key = keyIn(stdout);
  expect(await statusWith('shown', key)).toBe('authenticated');
  expect(stdout).toContain(
    `curl -X POST https://orc.example.com/orc/api/automation-triggers/shown -H 'x-api-key: ${key}'`,
  );
  const { stdout: later } = await orc('show', 'shown', '--json');
  expect(later).not.toContain(key);
});

test('create --url stores the URL and shows the signing secret, and nothing shows it again', async () => {
  const url = 'https://example.com/hook';
  const { stdout } = await orc('create', 'forward', '--url', url, '--attempts', '5');
  const [secret = ''] = stdout.match(/whsec_[0-9A-Za-z+/=]{44}/) ?? [];
  const stored = await store.automations.get('forward');
  expect(stored).toMatchObject({ action: { type: 'http', url }, attempts: 5 });
  expect(stored?.signingSecret).toBe(secret);
  for (const args of [['show', 'forward'], ['show', 'forward', '--json'], ['list'], ['list', '--json']]) {
    const { stdout: shown } = await orc(...args);
    expect(shown).toContain(url);
    expect(shown).not.toContain('whsec_');
  }
});

test('create --on-end and --on-failure store the URLs and show the signing secret once', async () => {
  const [end, failure] = ['https://example.com/end?token=s3cret', 'https://example.com/failure'];
  const created = await orc('create', 'told', '--on-end', end, '--on-failure', failure, '--', 'true');
  const [secret = ''] = created.stdout.match(/whsec_[0-9A-Za-z+/=]{44}/) ?? [];
  const stored = await store.automations.get('told');
  expect(stored).toMatchObject({ onEnd: end, onFailure: failure, signingSecret: secret });
  const { stdout } = await orc('show', 'told');
  expect(stdout).toMatch(/^on end +https:\/\/example\.com\/end\?token=\*\*\*$/m);
  expect(stdout).toMatch(/^on failure +https:\/\/example\.com\/failure$/m);
  const exported = await runOrc(['export'], { env });
  expect(exported.stdout).toContain(`onEnd: ${end}\n`);
  const refused = await orc(
    'create',
    'wrong-url',
    '--on-end',
    'ftp://example.com?token=s3cret',
    '--',
    'true',
  );
  expect([refused.code, refused.stderr]).toEqual([
    2,
    expect.stringContaining(
      "--on-end must be an http or https URL without a user name or password, not 'ftp://example.com?token=***'",
    ),
  ]);
});

test('rotate-secret prints a new secret once, and until when the old one signs, too', async () => {
  await orc('create', 'resigned', '--url', 'https://example.com');
  const { stdout } = await orc('rotate-secret', 'resigned', '--grace', '1m');
  const stored = await store.automations.get('resigned');
  const endsAt = stored?.previousSecretEndsAt?.toISOString();
  expect(stdout).toContain(`  ${stored?.signingSecret}\n`);
  expect(stdout).toContain(`Until ${endsAt}, what is sent is signed with the old secret, too.`);
  expect((await orc('show', 'resigned')).stdout).toMatch(new RegExp(`^old secret ends +${endsAt}$`, 'm'));
  const quiet = await orc('rotate-secret', 'resigned', '--grace', '0', '--quiet');
  expect(quiet.stdout).toBe(`${(await store.automations.get('resigned'))?.signingSecret}\n`);
});

test('rotate-secret says how an automation that sends nothing gets a secret', async () => {
  await createAutomation(store, 'sends-nothing');
  const { code, stderr } = await orc('rotate-secret', 'sends-nothing');
  expect([code, stderr]).toEqual([1, expect.stringContaining('with --url, --on-end or --on-failure')]);
});

test('what may be a secret in a URL is masked wherever an automation is shown, and export has it', async () => {
  const url = 'https://example.com/hook/T012/s3cret?token=s3cret&room=s3cret#s3cret';
  const events = [
    '--on-end',
    'https://example.com/end/s3cret',
    '--on-failure',
    'https://example.com/fail/s3cret',
  ];
  const created = await orc('create', 'masked', '--url', url, ...events, '--json');
  await orc('create', 'masked-argument', '--', 'curl', '--url=https://me:s3cret@example.com/?token=s3cret');
  const shown = [created, await orc('list'), await orc('list', '--json')];
  for (const slug of ['masked', 'masked-argument']) {
    shown.push(await orc('show', slug), await orc('show', slug, '--json'));
  }
  for (const { code, stdout } of shown) {
    expect(code).toBe(0);
    expect(stdout).toMatch(/example\.com\/(hook\/\*\*\*)?\?token=\*\*\*/);
    expect(stdout).not.toContain('s3cret');
  }
  const refused = await orc('create', 'wrong', '--url', 'example.com?token=s3cret');
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining("not 'example.com?token=***'")]);
  expect((await runOrc(['export'], { env })).stdout).toContain(url);
});

test('create --quiet prints the key alone, so that a shell can keep it in a variable', async () => {
  const command = 'KEY=$("$0" "$1" automations create quiet --quiet -- true) && printf "<%s>" "$KEY"';
  const { stdout } = await promisify(execFile)('sh', ['-c', command, process.execPath, ORC], {
    env: { PATH: process.env['PATH'], ...env },
  });
  expect(stdout).toMatch(/^<orc_\w+>$/);
  expect(await statusWith('quiet', stdout.slice(1, -1))).toBe('authenticated');
});

test('create --url --quiet prints the key alone on standard output, and the secret beside it', async () => {
  const { stdout, stderr } = await orc('create', 'quiet-url', '--url', 'https://example.com', '-q');
  expect(isWellFormedApiKey(stdout.trimEnd())).toBe(true);
  expect(stderr).toContain((await store.automations.get('quiet-url'))?.signingSecret);
});

test('create --json prints one value with the automation, its key and its secret', async () => {
  const { stdout } = await orc('create', 'json', '--json', '--url', 'https://example.com/');
  const { automation, apiKey, signingSecret } = JSON.parse(stdout);
  expect(automation).toMatchObject({ slug: 'json', enabled: true, attempts: 1, onWorkerLoss: 'rerun' });
  expect(await statusWith('json', apiKey)).toBe('authenticated');
  expect(signingSecret).toBe((await store.automations.get('json'))?.signingSecret);
});

test('a slug that exists is refused', async () => {
  await createAutomation(store, 'taken');
  const { code, stdout, stderr } = await orc('create', 'taken', '--', 'false');
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toContain('The automation taken already exists and was not changed.');
  expect(stderr).toContain('orc automations set taken');
});

test.each([
  ['an upper-case slug', ['Report', '--', 'true'], "'Report' is not a slug. Use lower-case letters"],
  ['no slug', [], "missing required argument 'slug'"],
  ['neither a command nor a URL', ['x'], 'a command after --, such as'],
  [
    'both a command and a URL',
    ['x', '--url', 'https://example.com', '--', 'true'],
    'cannot be combined with a command',
  ],
  [
    'a URL with a password',
    ['x', '--url', 'https://u:s3cret@example.com'],
    '--url must be an http or https URL without a user name or password',
  ],
  [
    '--env with a URL',
    ['x', '--url', 'https://example.com', '--env', 'A=1'],
    '--env is for commands and agents only',
  ],
  [
    'a duration without a unit',
    ['x', '--timeout', '10', '--', 'true'],
    '--timeout must be a number with a unit, such as 500ms, 90s',
  ],
  [
    'a rate without a unit',
    ['x', '--rate', '60', '--', 'true'],
    "--rate must be a number per s, m, h or d, such as 5/s, 60/m or 1000/d, not '60'",
  ],
  ['a variable without a value', ['x', '--env', 'KEY', '--', 'true'], "--env takes KEY=VALUE, not 'KEY'"],
  [
    'no attempts',
    ['x', '--attempts', '0', '--', 'true'],
    "--attempts must be a whole number from 1 to 100, not '0'",
  ],
  [
    'another choice',
    ['x', '--on-worker-loss', 'retry', '--', 'true'],
    "--on-worker-loss must be rerun or fail, not 'retry'",
  ],
  ['a misspelt option', ['x', '--atempts', '3', '--', 'true'], 'Did you mean --attempts?'],
])('create with %s is a usage error that says what to do', async (_, args, sentence) => {
  const { code, stdout, stderr } = await orc('create', ...args);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain(sentence);
  expect(stderr).not.toMatch(/^\s+at /m);
  expect(stderr).not.toContain('s3cret');
  expect(await store.automations.get('x')).toBeUndefined();
});

test('list shows every automation in the order of the slugs, as a table or as JSON', async () => {
  const other = openedAlone;
  await createAutomation(other, 'b-second', { name: 'Zweite', enabled: false });
  await createAutomation(other, 'a-first', {
    action: { type: 'command', argv: ['echo', 'two words'], env: {}, passEnv: [] },
  });
  const { code, stdout } = await runOrc(['automations', 'list'], { env: other.env });
  expect(code).toBe(0);
  expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['SLUG', 'STATE', 'ACTION', 'NAME'],
    ['a-first', 'enabled', 'echo "two words"'],
    ['b-second', 'disabled', 'true', 'Zweite'],
    [''],
  ]);
  const listed = JSON.parse((await runOrc(['automations', 'list', '--json'], { env: other.env })).stdout);
  expect(listed.map(({ slug }: { slug: string }) => slug)).toEqual(['a-first', 'b-second']);
});

const openedAlone = openTestStore();
const empty = openTestStore();

test('list without automations says how to create one, and is an empty list for programs', async () => {
  const { stdout } = await runOrc(['automations', 'list'], { env: empty.env });
  expect(stdout).toContain('orc automations create');
  const { stdout: json } = await runOrc(['automations', 'list', '--json'], { env: empty.env });
  expect(JSON.parse(json)).toEqual([]);
});

test('show prints what is configured; stored values are not shown to people', async () => {
  await createAutomation(store, 'details', {
    action: { type: 'command', argv: ['run', 'me'], env: { STORED: 's3cret' }, passEnv: ['PASSED'] },
    rate: { limit: 5, windowMs: 1000 },
    timeoutMs: 90_000,
  });
  const { code, stdout } = await orc('show', 'details');
  expect(code).toBe(0);
  for (const text of ['details', 'enabled', 'run me', 'STORED', 'PASSED', '5/s', '1 min 30 s', 'rerun']) {
    expect(stdout).toContain(text);
  }
  expect(stdout).not.toContain('s3cret');
  const shown = JSON.parse((await orc('show', 'details', '--json')).stdout);
  expect(shown).toMatchObject({ slug: 'details', timeoutMs: 90_000, rate: { limit: 5, windowMs: 1000 } });
  expect(JSON.stringify(shown)).not.toContain('keyHash');
});

test('disable and enable count from the next request on, and may be repeated', async () => {
  const key = await createAutomation(store, 'switched');
  for (const _ of ['once', 'twice']) {
    expect(await orc('disable', 'switched')).toEqual({
      code: 0,
      stdout: 'The automation switched is disabled.\n',
      stderr: '',
    });
    expect(await statusWith('switched', key)).toBe('disabled');
  }
  expect((await orc('enable', 'switched')).stdout).toBe('The automation switched is enabled.\n');
  expect(await statusWith('switched', key)).toBe('authenticated');
  expect(JSON.parse((await orc('disable', 'switched', '--json')).stdout)).toEqual({
    slug: 'switched',
    enabled: false,
  });
});

test('disable says what becomes of runs that wait', async () => {
  await acceptRuns(store, 'switched-off');
  expect((await orc('disable', 'switched-off')).stdout).toBe(
    [
      'The automation switched-off is disabled.',
      '1 of its runs have not ended. To cancel those that wait at once:',
      'orc runs cancel --automation switched-off --status queued\n',
    ].join('\n'),
  );
});

test('pause and resume say how many runs wait, may be repeated, and list and show say that it is paused', async () => {
  const key = await createAutomation(store, 'halted');
  for (const _ of ['once', 'twice']) {
    expect(await orc('pause', 'halted')).toEqual({
      code: 0,
      stdout:
        'The automation halted is paused: its runs are accepted and wait. To start them: orc automations resume halted\n',
      stderr: '',
    });
  }
  await runOrc(['trigger', 'halted'], { env });
  expect(await statusWith('halted', key)).toBe('authenticated');
  expect((await orc('list')).stdout).toMatch(/^halted +paused/m);
  expect((await orc('show', 'halted')).stdout).toMatch(/^state +paused\npaused since +20/m);
  expect(JSON.parse((await orc('show', 'halted', '--json')).stdout)).toHaveProperty('pausedAt');
  expect(JSON.parse((await orc('pause', 'halted', '--json')).stdout)).toEqual({
    slug: 'halted',
    paused: true,
    waiting: 1,
  });
  expect((await orc('resume', 'halted')).stdout).toBe('The automation halted is resumed: 1 run waited.\n');
  expect((await orc('list')).stdout).toMatch(/^halted +enabled/m);
  expect((await orc('resume', 'halted')).code).toBe(0);
});

test('set prints what changed, before and after, without what may be a secret', async () => {
  await createAutomation(store, 'changed', {
    action: { type: 'command', argv: ['run'], env: { OLD: 's3cret' }, passEnv: [] },
    rate: { limit: 60, windowMs: 60_000 },
  });
  const { code, stdout, stderr } = await orc(
    ...['set', 'changed', '--timeout', '5m', '--unset', 'rate', '--env', 'NEW=s3cret', '--unset', 'env.OLD'],
    ...['--', 'run', '--fast'],
  );
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout.split('\n')).toEqual([
    'The automation changed is changed:',
    '  command: ["run"] → ["run","--fast"]',
    '  rate: 60/m → default',
    '  timeout: default → 5m',
    '  env.OLD: another value',
    '  env.NEW: another value',
    '',
  ]);
  const json = JSON.parse((await orc('set', 'changed', '--disabled', '--json')).stdout);
  expect(json).toEqual({ slug: 'changed', fields: [{ field: 'enabled', to: false }] });
  expect((await orc('set', 'changed', '--timeout', '300s')).stdout).toBe(
    'The automation changed is like that already.\n',
  );
  expect((await orc('set', 'changed')).code).toBe(2);
});

test('set --url shows the signing secret that it issues, once', async () => {
  await createAutomation(store, 'to-url');
  const { stdout } = await orc('set', 'to-url', '--url', 'https://example.com/?token=s3cret');
  expect(stdout).toContain((await store.automations.get('to-url'))?.signingSecret);
  expect(stdout).not.toContain('s3cret');
  expect((await orc('set', 'to-url', '--url', 'https://example.com/')).stdout).not.toContain('whsec_');
});

test('delete ends the key, and frees the slug for another automation', async () => {
  const key = await createAutomation(store, 'gone');
  expect((await orc('delete', 'gone')).stdout).toBe('The automation gone is deleted.\n');
  expect(await statusWith('gone', key)).toBe('rejected');
  expect((await orc('delete', 'gone')).code).toBe(1);
  expect((await orc('create', 'gone', '--', 'true')).code).toBe(0);
  expect(await statusWith('gone', key)).toBe('rejected');
  expect(JSON.parse((await orc('delete', 'gone', '--json')).stdout)).toEqual({ slug: 'gone', deleted: true });
});

test('rotate-key prints a key that works and the exact moment at which the old one ends', async () => {
  const old = await createAutomation(store, 'rotated');
  const { stdout } = await orc('rotate-key', 'rotated', '--grace', '1m');
  expect(await statusWith('rotated', keyIn(stdout))).toBe('authenticated');
  expect(await statusWith('rotated', old)).toBe('authenticated');
  const endsAt = (await store.automations.get('rotated'))?.previousKeyEndsAt?.toISOString();
  expect(stdout).toContain(`The old key stays valid until ${endsAt}.`);
  expect((await orc('rotate-key', 'rotated', '--grace', '0')).stdout).toContain(
    'The old key is no longer valid.',
  );
  expect(await statusWith('rotated', old)).toBe('rejected');
});

test('rotate-key keeps the old key for a day unless told otherwise', async () => {
  await createAutomation(store, 'default-grace');
  const before = Date.now();
  const { slug, apiKey, previousKeyEndsAt } = JSON.parse(
    (await orc('rotate-key', 'default-grace', '--json')).stdout,
  );
  expect(slug).toBe('default-grace');
  expect(await statusWith('default-grace', apiKey)).toBe('authenticated');
  const graceMs = Date.parse(previousKeyEndsAt) - before;
  expect(graceMs).toBeGreaterThanOrEqual(86_400_000);
  expect(graceMs).toBeLessThan(86_400_000 + 60_000);
});

test('rotate-key --quiet prints the new key alone', async () => {
  await createAutomation(store, 'quietly');
  const { stdout, stderr } = await orc('rotate-key', 'quietly', '--quiet');
  expect(stderr).toBe('');
  expect(stdout).toMatch(/^orc_\w+\n$/);
  expect(await statusWith('quietly', stdout.trimEnd())).toBe('authenticated');
});

test.each(['soon', '366d'])('rotate-key --grace=%s is a usage error that rotates nothing', async (grace) => {
  const slug = `kept${grace.replace(/\W/g, '')}`;
  const key = await createAutomation(store, slug);
  const { code, stdout, stderr } = await orc('rotate-key', slug, `--grace=${grace}`);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toMatch(/is not a duration|at most 365d/);
  expect(await statusWith(slug, key)).toBe('authenticated');
  expect((await store.automations.get(slug))?.previousKeyEndsAt).toBeUndefined();
});

test.each(['show', 'set', 'enable', 'disable', 'pause', 'resume', 'delete', 'rotate-key', 'rotate-secret'])(
  '%s of an unknown slug suggests the one that was probably meant',
  async (verb) => {
    const slug = `known-${verb}`;
    await createAutomation(store, slug);
    const changes = verb === 'set' ? ['--attempts', '2'] : [];
    const { code, stdout, stderr } = await orc(verb, `knwon-${verb}`, ...changes);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`There is no automation "knwon-${verb}". Did you mean ${slug}?`);
  },
);

test('an unknown slug that resembles none gets no suggestion', async () => {
  await createAutomation(store, 'hello');
  const { code, stderr } = await orc('show', 'something-else-entirely');
  expect(code).toBe(1);
  expect(stderr).toContain('All of them: orc automations list');
  expect(stderr).not.toContain('Did you mean');
});

test('what is not a slug is unknown, and no control character of it reaches the terminal', async () => {
  const slugs = ['', '*', 'hello:x', '\u001b[31m'];
  for (const { code, stderr } of await Promise.all(slugs.map((slug) => orc('show', '--', slug)))) {
    expect(code).toBe(1);
    expect(stderr).toContain('There is no automation');
    expect(stderr).not.toContain('\u001b');
  }
});

test('create resolves a relative --cwd from where it is typed', async () => {
  const create = (slug: string, cwd: string) =>
    runOrc(['automations', 'create', slug, '--cwd', cwd, '--', './deploy.sh'], { env, cwd: '/srv/app' });
  for (const [slug, cwd, expected] of [
    ['in-place', '.', '/srv/app'],
    ['beside', '../other', '/srv/other'],
    ['below', 'scripts/', '/srv/app/scripts'],
  ] as const) {
    expect((await create(slug, cwd)).stderr).toBe('');
    expect(await store.automations.get(slug)).toMatchObject({ action: { cwd: expected } });
  }
  expect(await create('nowhere', '')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--cwd must be the absolute path of a directory'),
  });
});

test.each([
  ['./deploy.sh', true],
  ['../deploy.sh', true],
  ['scripts/deploy.sh', true],
  ['deploy.sh', false],
  ['/srv/deploy.sh', false],
])('create of %s without --cwd warns that it will not be found: %s', async (program, isWarned) => {
  const slug = `warned-${program.replaceAll(/\W/g, '')}-${program.length}`;
  const { code, stderr } = await orc('create', slug, '--', program);
  expect(code).toBe(0);
  expect(stderr).toBe(
    isWarned
      ? `orc: Warning: ${program} will not be found: without --cwd, the command runs in an empty working directory. Use an absolute path, or: orc automations set ${slug} --cwd DIR\n`
      : '',
  );
});
