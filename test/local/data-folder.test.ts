import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  cpSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { runOrc } from '../support/orc.ts';
import { type OrcProcess, runOrcProcess, startOrc } from '../support/orc-process.ts';
import { openFolder } from '../worker/workbench.ts';

const folder = openFolder();
const isRoot = process.getuid?.() === 0;

/** A user of the machine who is not this one; only root can leave something behind for them. */
const SOMEBODY_ELSE = 65_534;

const NO_REDIS = 'There is no Redis. Start `orc local` in this folder, or set REDIS_URL.';

function makeDirectory(name: string): string {
  mkdirSync(folder(name), { recursive: true });
  return folder(name);
}

async function start(cwd: string, ...options: string[]): Promise<OrcProcess> {
  const local = startOrc(['local', ...options], { cwd, env: { PORT: '0' } });
  // Not by SIGKILL, after which its Redis would stay.
  onTestFinished(async () => void (await local.stop('SIGINT')));
  await local.line('Ctrl-C stops everything');
  return local;
}

/** Starts it once, so that there is data. */
async function prepare(name: string): Promise<string> {
  const cwd = makeDirectory(name);
  const local = startOrc(['local'], { cwd, env: { PORT: '0' } });
  await local.line('Ctrl-C stops everything');
  expect(await local.stop('SIGINT')).toBe(0);
  return cwd;
}

/** A folder with data, for tests that leave it as they found it. */
let known: string;

beforeAll(async () => {
  known = await prepare('known');
});

/** How it is refused. */
async function refusal(cwd: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const { code, stdout, stderr } = await runOrcProcess(['local'], { cwd, env: { PORT: '0', ...env } });
  expect([code, stdout]).toEqual([1, '']);
  return stderr;
}

/** A Redis of somebody else, who counts who comes. */
async function listen() {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { url: `redis://127.0.0.1:${port}`, connections: () => connections };
}

/** What everything in a folder may be used for by others than its owner. */
function rightsOfOthers(path: string): string[] {
  const { mode } = lstatSync(path);
  const own = (mode & 0o077) === 0 ? [] : [`${path} ${(mode & 0o777).toString(8)}`];
  return lstatSync(path).isDirectory()
    ? [...own, ...readdirSync(path).flatMap((name) => rightsOfOthers(join(path, name)))]
    : own;
}

test('a folder above that names a Redis has no effect', async () => {
  const { url, connections } = await listen();
  const cwd = makeDirectory('shared/below');
  mkdirSync(folder('shared/.orc'), { mode: 0o700 });
  const state = { pid: process.pid, redisUrl: url, apiUrl: 'http://127.0.0.1:1' };
  writeFileSync(folder('shared/.orc/local.json'), JSON.stringify(state));
  writeFileSync(folder('shared/.orc/id'), 'AAAAAAAAAAAAAAAAAAAAAA\n');
  const { code, stderr } = await runOrc(['automations', 'list'], { cwd });
  expect([code, stderr]).toEqual([1, `orc: ${NO_REDIS}\n`]);
  expect(connections()).toBe(0);
});

test('data that came with a repository is refused until its user says that it is trusted', async () => {
  const original = known;
  const clone = makeDirectory('clone');
  cpSync(join(original, '.orc'), join(clone, '.orc'), { recursive: true });
  const running = await start(original);
  expect((await runOrc(['automations', 'list'], { cwd: clone })).stderr).toBe(`orc: ${NO_REDIS}\n`);
  const before = readdirSync(join(clone, '.orc'));
  expect(await refusal(clone)).toMatch(
    /^orc: \S+\/clone\/\.orc is not known as yours: .*: orc local --trust\. .*\n$/,
  );
  expect(readdirSync(join(clone, '.orc'))).toEqual(before);

  await start(clone, '--trust');
  for (const cwd of [original, clone]) {
    const { stdout } = await runOrc(['automations', 'list'], { cwd });
    expect(stdout).toContain('hello');
  }
  await running.stop('SIGINT');
  // It knows the copy from now on, and still the original.
  await start(original);
});

test('a folder that others can write to is refused, and the start in one that they can read takes their rights', async () => {
  const cwd = known;
  expect(rightsOfOthers(join(cwd, '.orc'))).toEqual([]);
  chmodSync(join(cwd, '.orc'), 0o777);
  const reason = `Other users can write to ${cwd}/.orc, so its content cannot be trusted. If you know that nobody wrote to it: chmod 700 ${cwd}/.orc`;
  expect(await refusal(cwd)).toBe(`orc: ${reason}\n`);
  expect((await runOrc(['runs', 'list'], { cwd })).stderr).toBe(`orc: ${NO_REDIS}\nIgnored: ${reason}\n`);

  // What lets them only read is no reason to refuse it, but is taken from them.
  chmodSync(join(cwd, '.orc'), 0o755);
  for (const name of readdirSync(join(cwd, '.orc'))) chmodSync(join(cwd, '.orc', name), 0o755);
  const local = await start(cwd);
  // The socket of the lock can only be reached through the folders.
  expect(rightsOfOthers(join(cwd, '.orc')).filter((each) => !each.includes('/lock/'))).toEqual([]);
  await local.stop('SIGINT');
});

test('what belongs to another user is refused and passed over', async (context) => {
  if (!isRoot) context.skip('only root can leave something of another user behind');
  const cwd = known;
  chownSync(join(cwd, '.orc'), SOMEBODY_ELSE, SOMEBODY_ELSE);
  const reason = `${cwd}/.orc belongs to another user (user id ${SOMEBODY_ELSE}). Use a folder of your own, or run orc as that user.`;
  expect(await refusal(cwd)).toBe(`orc: ${reason}\n`);
  const below = makeDirectory('known/below');
  const { code, stderr } = await runOrc(['automations', 'list'], { cwd: below });
  expect([code, stderr]).toEqual([1, `orc: ${NO_REDIS}\nIgnored: ${reason}\n`]);

  chownSync(join(cwd, '.orc'), 0, 0);
  chownSync(join(cwd, '.orc', 'redis.log'), SOMEBODY_ELSE, SOMEBODY_ELSE);
  expect(await refusal(cwd)).toContain('.orc/redis.log belongs to another user');
  chownSync(join(cwd, '.orc', 'redis.log'), 0, 0);
});

test('a folder that takes the place of the data while Redis starts is not worked with', async () => {
  const cwd = makeDirectory('swapped');
  const server = await findRedisServer({ env: process.env, report: () => undefined });
  const bin = makeDirectory('bin');
  const { LD_LIBRARY_PATH = '' } = server.env;
  // What somebody who may write to the folder above can do at just the wrong moment.
  const swap = `mv '${cwd}/.orc' '${cwd}/aside' && mkdir -m 700 '${cwd}/.orc'`;
  writeFileSync(
    join(bin, 'redis-server'),
    `#!/bin/sh\ncase "$*" in *--dir*) ${swap} ;; esac\nLD_LIBRARY_PATH='${LD_LIBRARY_PATH}' exec '${server.command}' "$@"\n`,
    { mode: 0o755 },
  );
  const { PATH } = process.env;
  expect(await refusal(cwd, { PATH: `${bin}:${PATH}` })).toBe(
    `orc: ${cwd}/.orc was replaced by another folder while Redis started. Use a folder that nobody else can write to.\n`,
  );
});

test('data stays known where its folder moves, even to a long path with a question mark', async () => {
  const cwd = join(makeDirectory('long'.repeat(40)), 'what?db=1');
  renameSync(known, cwd);
  await start(cwd);
  const { code, stdout } = await runOrc(['automations', 'list'], { cwd });
  expect([code, stdout]).toEqual([0, expect.stringContaining('hello')]);
});

test.each([
  [
    'cannot be created',
    '/dev/null/state',
    /^orc: \/dev\/null\/state\/orc cannot be created: ENOTDIR.* Set XDG_STATE_HOME to /,
  ],
  ['is too long', folder('x'.repeat(90)), /^orc: \S+ is too long for the path of a socket.*XDG_STATE_HOME/],
])('a state folder that %s is one clear error', async (_, XDG_STATE_HOME, message) => {
  const cwd = mkdtempSync(folder('state-'));
  expect(await refusal(cwd, { XDG_STATE_HOME })).toMatch(message);
});

test('of several that start at once in one folder exactly one runs, and the others say so', async () => {
  for (const name of ['new', 'known']) {
    const cwd = name === 'new' ? makeDirectory('race') : folder('race');
    const all = Array.from({ length: 4 }, () => startOrc(['local'], { cwd, env: { PORT: '0' } }));
    onTestFinished(async () => void (await Promise.all(all.map((each) => each.stop('SIGINT')))));
    const results = await Promise.all(
      all.map((each) =>
        Promise.race([
          each.line('Ctrl-C stops everything').then(
            () => 'runs',
            () => 'ended',
          ),
          once(each.child, 'close').then(() => 'ended'),
        ]),
      ),
    );
    expect([name, results.sort()]).toEqual([name, ['ended', 'ended', 'ended', 'runs']]);
    for (const { child, lines } of all) {
      if (child.exitCode === null) continue;
      expect([child.exitCode, lines.join('\n')]).toEqual([
        1,
        expect.stringMatching(
          /^orc: orc local (already runs here, at \S+|is starting or stopping here) \(process \d+\)\./,
        ),
      ]);
    }
    const { stdout } = await runOrc(['automations', 'list'], { cwd });
    expect(stdout).toContain('hello');
    const running = all.find(({ child }) => child.exitCode === null);
    expect(await running?.stop('SIGINT')).toBe(0);
  }
});

test('one that is suspended still has the folder, and the others say what may be the matter', async () => {
  const cwd = makeDirectory('suspended');
  const local = await start(cwd);
  local.child.kill('SIGSTOP');
  try {
    expect(await refusal(cwd)).toMatch(/^orc: orc local already runs here but does not answer\. .*\n$/);
    expect((await runOrc(['automations', 'list'], { cwd })).stdout).toContain('hello');
  } finally {
    local.child.kill('SIGCONT');
  }
  expect(await local.stop('SIGINT')).toBe(0);
});
