import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect as connectSocket, createServer, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test, vi } from 'vitest';
import { parse } from 'yaml';
import { readAutomationFile, schemaText } from '../../src/cli/automation-file.ts';
import { carryOut } from '../../src/cli/carry-out.ts';
import { CommandError, createOutput } from '../../src/cli/output.ts';
import { planOf } from '../../src/cli/plan.ts';
import type { Store } from '../../src/store/store.ts';
import { hasCommand } from '../support/machine.ts';
import { type OpenApiDocument, schemaChecker } from '../support/openapi.ts';
import { runOrc } from '../support/orc.ts';
import { ORC } from '../support/orc-process.ts';
import { command, createAutomation, openTestStore } from '../support/store.ts';
import { eventually, openFolder } from '../worker/workbench.ts';

const folder = openFolder();
const schema = readFileSync(new URL('../../openapi/automations.schema.json', import.meta.url), 'utf8');

function write(name: string, content: string): string {
  writeFileSync(folder(name), content);
  return folder(name);
}

const statusWith = async ({ automations }: Store, slug: string, key: string) =>
  (await automations.authenticate(slug, key)).status;

/** Everything that is stored of all automations. */
async function stored({ automations, redis, keys }: Store): Promise<Record<string, string>[]> {
  const slugs = await automations.slugs();
  return Promise.all(slugs.map((slug) => redis.hgetall(keys.automation(slug))));
}

test('the schema in the package is what the code checks', () => {
  expect(schema).toBe(schemaText());
});

const complete = openTestStore();

test('export prints what the options of create have made, for people to read and change', async () => {
  const { env } = complete;
  await runOrc(
    [
      ...['automations', 'create', 'report', '--name', 'Nightly report', '--timeout', '600s'],
      ...['--attempts', '3', '--concurrency', '2', '--rate', '60/m', '--keep-runs', '50', '--cwd', '/srv'],
      ...['--env', 'A=1', '--pass-env', 'TOKEN', '--on-worker-loss', 'fail', '--disabled'],
      ...['--', 'python3', 'report.py', 'two words'],
    ],
    { env },
  );
  await runOrc(['automations', 'create', 'forward', '--url', 'https://example.com/hook?a=1'], { env });
  const { code, stdout, stderr } = await runOrc(['export'], { env });
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(
    /^# yaml-language-server: \$schema=\S+\/openapi\/automations\.schema\.json\n# .*env.*\n/,
  );
  const [, path = ''] = /\$schema=(\S+)/.exec(stdout) ?? [];
  expect(readFileSync(path, 'utf8')).toBe(schema);
  expect(stdout.replace(/^#.*\n/gm, '').trimStart()).toBe(`automations:
  forward:
    url: https://example.com/hook?a=1

  report:
    name: Nightly report
    enabled: false
    command: [python3, report.py, two words]
    cwd: /srv
    env:
      A: "1"
    passEnv: [TOKEN]
    timeout: 10m
    attempts: 3
    concurrency: 2
    rate: 60/m
    keepRuns: 50
    onWorkerLoss: fail
`);
  const components = { schemas: { file: JSON.parse(schema) } };
  const check = await schemaChecker({ components } as unknown as OpenApiDocument);
  const file = '#/components/schemas/file';
  expect(check(file, parse(stdout))).toBeUndefined();
  expect(check(file, { automations: { a: { url: 'https://example.com', command: ['x'] } } })).toBeDefined();
  expect(check(file, { automations: { a: { command: ['x'], attemps: 2 } } })).toBeDefined();
});

/** Texts that a careless writer of YAML would change. */
const TEXTS = [
  '',
  ' ',
  'null',
  'yes',
  '1e3',
  '0x10',
  '007',
  '- a',
  '# no',
  'a: b',
  '{}',
  "'",
  '"',
  '\t',
  '\\n',
];
const MORE_TEXTS = [
  'two\nlines\n',
  '\n\n',
  'ü😀',
  '\u0085\u2028',
  '\r\n',
  '&a *b',
  '!!int 1',
  '<<',
  '%',
  '@',
  '|',
];

const odd = openTestStore();

test('what export prints, apply changes nothing for, and every key and secret stays', async () => {
  const words = [...TEXTS, ...MORE_TEXTS];
  const key = await createAutomation(odd, 'odd', {
    action: { type: 'command', argv: words, env: { EMPTY: '', NO: words.join('') }, passEnv: ['null', 'Y'] },
    name: 'key: "value" # not a comment',
    timeoutMs: 1500,
    rate: { limit: 7, windowMs: 86_400_000 },
  });
  for (const slug of ['null', '7', '1e3', '007', 'true']) await createAutomation(odd, slug);
  await createAutomation(odd, 'signed', { action: { type: 'http', url: 'https://example.com/@me' } });
  const before = await stored(odd);
  const exported = await runOrc(['export'], { env: odd.env });
  expect(exported.stdout).not.toMatch(/whsec_|orc_[0-9A-Za-z]{49}/);
  expect(exported.stdout).not.toContain(before.map(({ keyHash }) => keyHash).join('|'));
  for (const args of [['export'], ['export', '--json']]) {
    const { stdout } = await runOrc(args, { env: odd.env });
    const file = write('round-trip.yaml', stdout);
    const { code, stdout: said } = await runOrc(['apply', '-f', file, '--prune'], { env: odd.env });
    expect([code, said]).toEqual([0, expect.stringContaining('There is nothing to change.')]);
    expect(said).not.toMatch(/^(create|change|delete)/m);
  }
  expect(await stored(odd)).toEqual(before);
  expect(await statusWith(odd, 'odd', key)).toBe('authenticated');
});

const planned = openTestStore();

test('apply shows the plan, carries it out, and shows each new key once', async () => {
  const { env } = planned;
  const key = await createAutomation(planned, 'deploy', { timeoutMs: 60_000, concurrency: 2 });
  await createAutomation(planned, 'same');
  await createAutomation(planned, 'old');
  const file = write(
    'plan.yaml',
    `automations:
  same: {command: ["true"]}
  deploy:
    command: [./deploy.sh]
    env: {TOKEN: s3cret}
    timeout: 60s
    attempts: 3
  forward:
    url: https://example.com/
`,
  );
  const before = await stored(planned);
  const dry = await runOrc(['apply', '-f', file, '--dry-run', '--prune'], { env });
  expect([dry.code, dry.stderr]).toEqual([0, '']);
  expect(dry.stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['PLAN', 'AUTOMATION', 'WHAT'],
    ['unchanged', 'same'],
    ['change', 'deploy', 'command: ["true"] → ["./deploy.sh"]'],
    ['', 'concurrency: 2 → default'],
    ['', 'attempts: default → 3'],
    ['', 'env.TOKEN: another value'],
    ['create', 'forward', 'https://example.com/'],
    ['delete', 'old', 'its key becomes invalid; its runs stay readable'],
    [''],
    ['This was a dry run: nothing was changed.'],
    [''],
  ]);
  expect(dry.stdout).not.toContain('s3cret');
  expect(await stored(planned)).toEqual(before);

  const applied = await runOrc(['apply', '-f', file], { env });
  expect([applied.code, applied.stderr]).toEqual([0, '']);
  const [newKey = ''] = applied.stdout.match(/orc_[0-9A-Za-z]{49}/) ?? [];
  expect(await statusWith(planned, 'forward', newKey)).toBe('authenticated');
  expect(applied.stdout).toContain((await planned.automations.get('forward'))?.signingSecret);
  expect(applied.stdout).toContain('kept without --prune: 1.');
  expect(applied.stdout).toMatch(/^1 created, 1 changed, 1 unchanged\.$/m);
  expect(await statusWith(planned, 'deploy', key)).toBe('authenticated');
  const deploy = await planned.automations.get('deploy');
  expect(deploy).toMatchObject({ attempts: 3, timeoutMs: 60_000, action: { env: { TOKEN: 's3cret' } } });
  expect(deploy?.concurrency).toBeUndefined();
  expect(await planned.automations.slugs()).toContain('old');

  const again = await runOrc(['apply', '-f', file, '--prune', '--json'], { env });
  expect(JSON.parse(again.stdout)).toMatchObject({
    applied: true,
    plan: [
      { slug: 'same', change: 'unchanged' },
      { slug: 'deploy', change: 'unchanged' },
      { slug: 'forward', change: 'unchanged' },
      { slug: 'old', change: 'delete' },
    ],
    secrets: [],
  });
  expect(await planned.automations.slugs()).toEqual(['deploy', 'forward', 'same']);
});

const secretive = openTestStore();

test('a plan shows no value of a variable and no secret in a URL, and that they change', async () => {
  const { env } = secretive;
  const url = (token: string) => `https://u.example/${token && `?token=${token}`}`;
  await createAutomation(secretive, 'url', { action: { type: 'http', url: url('s3cret-1') } });
  await createAutomation(secretive, 'argument', { action: command('curl', url('s3cret-1')) });
  const file = write(
    'secretive.yaml',
    `automations:
  url: {url: "${url('s3cret-2')}"}
  argument: {command: [curl, "${url('s3cret-2')}", "-v"]}
  new: {url: "${url('s3cret-3')}"}
  new-argument: {command: [curl, "${url('s3cret-3')}"]}
`,
  );
  const { stdout } = await runOrc(['apply', '-f', file, '--dry-run'], { env });
  expect(
    stdout
      .split('\n')
      .slice(1, 5)
      .map((line) => line.split(/ {2,}/)[2]),
  ).toEqual([
    'url: another value',
    'command: ["curl","https://u.example/?token=***"] → ["curl","https://u.example/?token=***","-v"]',
    'https://u.example/?token=***',
    '["curl","https://u.example/?token=***"]',
  ]);
  const json = await runOrc(['apply', '-f', file, '--json'], { env });
  expect(JSON.parse(json.stdout)).toMatchObject({ applied: true, plan: { length: 4 } });
  expect(stdout + json.stdout).not.toContain('s3cret');
  expect(await secretive.automations.get('url')).toMatchObject({ action: { url: url('s3cret-2') } });
});

const changing = openTestStore();

test('a command that becomes a URL keeps its key and gets a signing secret', async () => {
  const { env, automations } = changing;
  const key = await createAutomation(changing, 'x', { action: command('true') });
  const file = write('url.yaml', 'automations: {x: {url: "https://example.com/"}}\n');
  const { stdout } = await runOrc(['apply', '-f', file], { env });
  const secret = (await automations.get('x'))?.signingSecret;
  expect(secret).toMatch(/^whsec_/);
  expect(stdout).toContain(secret);
  expect(await statusWith(changing, 'x', key)).toBe('authenticated');
});

const filed = openTestStore();

test('--keys-dir writes keys to files that only their owner reads, and replaces none', async () => {
  const { env } = filed;
  const file = write('keys.yaml', 'automations:\n  a: {command: [x]}\n  b: {url: "https://example.com"}\n');
  const directory = folder('keys');
  const { code, stdout } = await runOrc(['apply', '-f', file, '--keys-dir', directory], { env });
  expect(code).toBe(0);
  expect(stdout).not.toMatch(/orc_|whsec_/);
  expect(readdirSync(directory).sort()).toEqual(['a', 'b', 'b.signing-secret']);
  for (const name of readdirSync(directory))
    expect(statSync(`${directory}/${name}`).mode & 0o777).toBe(0o600);
  for (const slug of ['a', 'b']) {
    const key = readFileSync(`${directory}/${slug}`, 'utf8').trimEnd();
    expect(await statusWith(filed, slug, key)).toBe('authenticated');
  }
  mkdirSync(folder('more-keys'));
  write('more-keys/d', 'of another installation');
  const more = write('more.yaml', 'automations:\n  c: {command: [x]}\n  d: {command: [x]}\n');
  const refused = await runOrc(['apply', '-f', more, '--keys-dir', folder('more-keys')], { env });
  expect(refused.code).toBe(1);
  expect(refused.stderr).toMatch(
    /more-keys\/d already exists\. Move it away first; nothing was changed\.\n$/,
  );
  expect(readdirSync(folder('more-keys'))).toEqual(['d']);
  expect(await filed.automations.slugs()).toEqual(['a', 'b']);
});

const unwritable = openTestStore();

test('--keys-dir changes nothing when what it is to hold could not be written', async () => {
  const { env } = unwritable;
  const file = write('unwritable.yaml', 'automations: {u: {url: "https://example.com"}}\n');
  mkdirSync(folder('taken-keys/u.signing-secret'), { recursive: true });
  const taken = await runOrc(['apply', '-f', file, '--keys-dir', folder('taken-keys')], { env });
  expect([taken.code, taken.stderr]).toEqual([
    1,
    expect.stringMatching(/u\.signing-secret already exists\. Move it away first; nothing was changed\.\n$/),
  ]);
  expect(readdirSync(folder('taken-keys'))).toEqual(['u.signing-secret']);
  // A disk without room, for one process.
  const line = `ulimit -f 0; exec '${process.execPath}' '${ORC}' apply -f '${file}' --keys-dir '${folder('no-room')}'`;
  const child = spawn('sh', ['-c', line], { env: { PATH: process.env['PATH'], ...env } });
  const said = await text(child.stderr);
  expect(said).toMatch(/^orc: The keys cannot be written: EFBIG.*; nothing was changed\.\n$/);
  expect(readdirSync(folder('no-room'))).toEqual([]);
  expect(await unwritable.automations.slugs()).toEqual([]);
});

test('what cannot be written after all is printed, and what follows is left as it is', async () => {
  const create = unwritable.automations.create.bind(unwritable.automations);
  const spy = vi.spyOn(unwritable.automations, 'create').mockImplementation(async (definition, minted) => {
    // Somebody takes the name meanwhile.
    mkdirSync(folder(`lost-keys/${definition.slug}.signing-secret`));
    return create(definition, minted);
  });
  onTestFinished(() => spy.mockRestore());
  const printed: string[] = [];
  const stream = Object.assign(new PassThrough(), { isTTY: false }) as unknown as NodeJS.WriteStream;
  stream.on('data', (data) => printed.push(String(data)));
  const entries = readAutomationFile(
    'automations: {f: {url: "https://example.com"}, g: {command: [x]}}',
    'f',
  );
  const plan = planOf(entries, [], false);
  const carriedOut = carryOut(
    plan,
    unwritable,
    { keysDir: folder('lost-keys') },
    createOutput(stream, stream, true),
  );
  await expect(carriedOut).rejects.toThrow(/^The secrets of f could not be put .* are printed instead\./);
  const { signingSecret = 'none' } = (await unwritable.automations.get('f')) ?? {};
  const [apiKey = ''] = /orc_[0-9A-Za-z]{49}/.exec(printed.join('')) ?? [];
  expect(printed.join('')).toContain(signingSecret);
  expect(await statusWith(unwritable, 'f', apiKey)).toBe('authenticated');
  expect(await unwritable.automations.slugs()).toEqual(['f']);
  expect(readdirSync(folder('lost-keys')).sort()).toEqual(['f', 'f.signing-secret']);
});

/** Stands between orc and Redis: once orc has sent a text, it gets no answers any more. */
async function muteAfter(text: string, redisUrl: string): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connectSocket(redisUrl);
    let isMute = false;
    for (const socket of [client, upstream]) sockets.add(socket.on('error', () => undefined));
    client.on('data', (data) => {
      isMute ||= data.includes(text);
      upstream.write(data);
    });
    upstream.on('data', (data) => isMute || client.write(data));
    client.on('close', () => upstream.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test('a key whose automation was created is on the disk, also when orc is killed before it has the answer', async () => {
  const store = openTestStore();
  const file = write('killed.yaml', 'automations: {killed: {url: "https://example.com"}}\n');
  const directory = folder('killed-keys');
  const REDIS_URL = await muteAfter('keyHash', store.env['REDIS_URL'] ?? '');
  const child = spawn(process.execPath, [ORC, 'apply', '-f', file, '--keys-dir', directory], {
    env: { PATH: process.env['PATH'], ...store.env, REDIS_URL },
    stdio: 'ignore',
  });
  await eventually(() => store.automations.slugs()).toEqual(['killed']);
  child.kill('SIGKILL');
  await once(child, 'exit');
  const names = readdirSync(directory).sort();
  expect(names).toEqual([
    expect.stringMatching(/^\.killed\.new-\w+$/),
    expect.stringMatching(/^\.killed\.signing-secret\.new-\w+$/),
  ]);
  const [key = '', secret] = names.map((name) => readFileSync(`${directory}/${name}`, 'utf8').trimEnd());
  expect(await statusWith(store, 'killed', key)).toBe('authenticated');
  expect((await store.automations.get('killed'))?.signingSecret).toBe(secret);
  expect(statSync(`${directory}/${names[0]}`).mode & 0o777).toBe(0o600);
});

/** The messages about a file, without its name. */
function problemsOf(content: string): string[] {
  try {
    readAutomationFile(content, 'f.yaml');
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return error.message.split('\n').slice(1);
  }
  return [];
}

test('everything that is wrong with a file is said at once, with file, line and field', async () => {
  const store = changing;
  const content = `automations:
  Deploy:
    command: [x]
  report:
    command: report.py
    attempts: 0
    timout: 10m
    timeout: 30d
    enabled: "no"
    env:
      A-B: x
      PORT: 80
      ORC_X: x
    passEnv: [OK, no-name]
    onWorkerLoss: retry
  both: {command: [x], url: "https://u:s3cret@example.com"}
  none:
    rate: 60
  forward:
    url: https://example.com
    cwd: /srv
  listed:
    command: [x]
    env: [A=1]
`;
  const { code, stdout, stderr } = await runOrc(['apply', '-f', write('wrong.yaml', content)], {
    env: store.env,
  });
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toContain('wrong.yaml is not a valid file of automations; nothing was changed.');
  expect(stderr).not.toContain('s3cret');
  expect(problemsOf(content).sort()).toEqual(
    [
      "f.yaml:2: 'Deploy' is not a slug. Use lower-case letters, digits and single hyphens between them, at most 64 characters, such as nightly-report.",
      "f.yaml:5: report.command must be a list of texts, the program first, not 'report.py'",
      "f.yaml:6: report.attempts must be a whole number from 1 to 100, not '0'",
      'f.yaml:7: report.timout is unknown. Did you mean timeout?',
      "f.yaml:8: report.timeout must be a number with a unit, such as 500ms, 90s, 10m or 24h, longer than 0 and at most 7d, not '30d'",
      "f.yaml:9: report.enabled must be true or false, not 'no'",
      "f.yaml:11: report.env contains 'A-B', which is not a variable name",
      'f.yaml:12: report.env.PORT must be text: put the value in quotes',
      "f.yaml:13: report.env contains 'ORC_X', but names that begin with ORC_ are reserved for orc",
      "f.yaml:14: report.passEnv contains 'no-name', which is not a variable name",
      "f.yaml:15: report.onWorkerLoss must be rerun or fail, not 'retry'",
      'f.yaml:16: both.url must be an http or https URL without a user name or password',
      'f.yaml:16: both.url cannot be combined with a command',
      'f.yaml:17: none needs a command, an agent or a url',
      "f.yaml:18: none.rate must be a number per s, m, h or d, such as 5/s, 60/m or 1000/d, not '60'",
      'f.yaml:24: listed.env must be a map of variables to texts',
      'f.yaml:21: forward.cwd is for commands only and cannot be combined with a URL',
    ].sort(),
  );
});

test.each([
  ['nothing', '', ['f.yaml:1: the file must begin with automations:']],
  ['a list', '- a\n', ['f.yaml:1: the file must begin with automations:']],
  [
    'no automations',
    'automations:\n',
    ['f.yaml:1: automations must be a map of slugs to automations; {} is an empty one'],
  ],
  [
    'an entry without fields',
    'automations:\n  a:\n',
    ['f.yaml:2: a must be a map with a command, an agent or a url'],
  ],
  [
    'a slug twice',
    'automations:\n  a: {command: [x]}\n  a: {command: [y]}\n',
    ['f.yaml:3: Map keys must be unique'],
  ],
  [
    'something besides',
    'automations: {}\nother: 1\n',
    ['f.yaml:2: other is unknown; list the automations under automations:'],
  ],
  ['no YAML', 'automations:\n  a: [\n', [expect.stringMatching(/^f\.yaml:\d+: .+/)]],
])('a file with %s is refused', (_, content, problems) => {
  expect(problemsOf(content)).toEqual(problems);
});

test('a NUL character is refused wherever a program would be given it', () => {
  const content = `automations:
  a:
    command: [x, "a\\0b"]
    cwd: "/srv\\0"
    env: {A: "\\0", B: b}
  b: {command: ["\\0"]}
`;
  const problem = 'contains a NUL character, which no program can receive';
  expect(problemsOf(content).sort()).toEqual([
    `f.yaml:3: a.command ${problem}`,
    `f.yaml:4: a.cwd ${problem}`,
    `f.yaml:5: a.env.A ${problem}`,
    `f.yaml:6: b.command ${problem}`,
  ]);
});

test('what several automations share can be written once', () => {
  const entries = readAutomationFile(
    `automations:
  a: &shared {command: [x], attempts: 3}
  b: {<<: *shared, timeout: 1m}
  007: *shared
`,
    'f.yaml',
  );
  expect(Object.fromEntries(entries)).toEqual({
    a: { command: ['x'], attempts: 3 },
    b: { command: ['x'], attempts: 3, timeout: '1m' },
    '007': { command: ['x'], attempts: 3 },
  });
});

test('a file that cannot be read is one clear error; standard input can be the file', async () => {
  const { env } = changing;
  const missing = await runOrc(['apply', '-f', folder('missing.yaml')], { env });
  expect([missing.code, missing.stdout]).toEqual([1, '']);
  expect(missing.stderr).toMatch(/^orc: \S+missing\.yaml cannot be read: ENOENT.*\n$/);
  const child = spawn(process.execPath, [ORC, 'apply', '-f', '-', '--dry-run'], { env });
  child.stdin.end('automations: {x: {command: [y], attempts: 0}}');
  expect(await text(child.stderr)).toContain('standard input:1: x.attempts must be a whole number');
});

const asked = openTestStore();

test.runIf(process.platform === 'linux' && hasCommand('script'))(
  'in a terminal it asks, and takes anything but yes for no',
  async () => {
    const file = write('asked.yaml', 'automations: {x: {command: ["true"]}}\n');
    const answer = async (word: string) => {
      const line = `${process.execPath} ${ORC} apply -f ${file}`;
      const child = spawn('script', ['--quiet', '--return', '--command', line, '/dev/null'], {
        env: { PATH: process.env['PATH'], TERM: 'dumb', ...asked.env },
      });
      child.stdout.on('data', (data) => {
        if (String(data).includes('[y/N]')) child.stdin.write(`${word}\n`);
      });
      return text(child.stdout);
    };
    expect(await answer('n')).toContain('Nothing was changed.');
    expect(await asked.automations.slugs()).toEqual([]);
    expect(await answer('y')).toContain('1 created.');
    expect(await asked.automations.slugs()).toEqual(['x']);
  },
);
