import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import {
  access,
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import {
  findRedisServer,
  type RedisServer,
  RedisServerMissingError,
} from '../../src/local/find-redis-server.ts';
import { type StartRedisServerOptions, startRedisServer } from '../../src/local/redis-server.ts';
import { compiled } from '../support/repository.ts';

const COMPILED = compiled('local/redis-server.js');

let root: string;
let server: RedisServer;
let dataDir: string;
/** So long that no socket has room for its path. */
let longDataDir: string;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'orc-redis-server-'));
  server = await findRedisServer({ env: process.env, report: () => undefined });
});

beforeEach(async () => {
  dataDir = await mkdtemp(join(root, 'data-'));
  longDataDir = join(dataDir, 'long'.repeat(30));
});

afterAll(() => rm(root, { recursive: true, force: true }));

async function start(options: Partial<StartRedisServerOptions> = {}) {
  const started = await startRedisServer({ server, dataDir, persistence: 'always', ...options });
  onTestFinished(() => started.stop());
  return started;
}

function client(url: string): Redis {
  // The servers end while their clients are connected.
  const redis = new Redis(url).on('error', () => undefined);
  onTestFinished(() => redis.disconnect());
  return redis;
}

/** A process that starts a server, writes `before` to it and then stays until it is ended. */
async function startInProcess(directory: string) {
  const options = JSON.stringify({ server, dataDir: directory, persistence: 'always' });
  const script = `
    const { startRedisServer } = await import(${JSON.stringify(COMPILED)});
    const { pid, socketPath } = await startRedisServer(${options});
    console.log(JSON.stringify({ pid, socketPath }));
    process.stdin.resume().once('end', () => process.exit());`;
  const owner = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  onTestFinished(() => void owner.kill('SIGKILL'));
  const [line] = await once(createInterface(owner.stdout), 'line');
  const { pid, socketPath } = JSON.parse(String(line)) as { pid: number; socketPath: string };
  onTestFinished(() => rm(dirname(socketPath), { recursive: true, force: true }));
  // Redis closes it when it ends, which is how one hears of the end of a process that is not one's child.
  const connection = connect(socketPath).resume();
  await once(connection, 'connect');
  const ended = once(connection, 'close');
  return { owner, pid, socketPath, ended };
}

describe('a started server', () => {
  test('answers on a socket that only its user can open, and listens on no port', async () => {
    const { url, socketPath } = await start();
    expect(url).toBe(socketPath);
    expect((await stat(socketPath)).mode & 0o777).toBe(0o700);
    const redis = client(url);
    expect(await redis.config('GET', 'port')).toEqual(['port', '0']);
  });

  test('never evicts and writes every command to disk before it answers', async () => {
    const redis = client((await start()).url);
    expect(await redis.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction']);
    expect(await redis.config('GET', 'appendonly')).toEqual(['appendonly', 'yes']);
    expect(await redis.config('GET', 'appendfsync')).toEqual(['appendfsync', 'always']);
  });

  test('writes nothing to disk when no persistence is asked for', async () => {
    const started = await start({ persistence: 'none' });
    await client(started.url).set('key', 'value');
    await started.stop();
    expect(await readdir(dataDir)).toEqual(['redis.log']);
  });

  test('answers on a free loopback port when a port is asked for', async () => {
    const { url } = await start({ listen: { port: 0 } });
    expect(url).toMatch(/^redis:\/\/127\.0\.0\.1:\d+$/);
    expect(await client(url).ping()).toBe('PONG');
  });

  test.each([
    ['long', () => longDataDir],
    ['one that ioredis would read options from', () => join(dataDir, 'a?db=1')],
    ['one with spaces, an apostrophe and a letter like é', () => join(dataDir, "it's a café")],
  ])('works in a directory whose path is %s', async (_, directory) => {
    const first = await start({ dataDir: directory() });
    await client(first.url).set('key', 'kept');
    await first.stop();
    await expect(access(first.socketPath)).rejects.toThrow('ENOENT');

    const second = await start({ dataDir: directory() });
    expect(await client(second.url).get('key')).toBe('kept');
  });

  test('never executes a part of a script whose end did not reach the disk', async () => {
    const first = await start();
    const script = "redis.call('SET', 'first', ARGV[1]) redis.call('SET', 'second', ARGV[2])";
    await client(first.url).eval(script, 0, 'whole', 'cut');
    process.kill(first.pid, 'SIGKILL');
    await first.exited;
    const files = await readdir(dataDir, { recursive: true });
    // Redis 7 has a file for what came after its start.
    const aof = join(dataDir, files.filter((name) => /^(?!.*\.base\.).*\.aof$/.test(name))[0] ?? '');
    await truncate(aof, (await readFile(aof)).lastIndexOf('cut'));

    const second = await start();
    await client(second.url).eval(script.replaceAll("'SET', '", "'SET', 'later-"), 0, 'whole', 'whole');
    process.kill(second.pid, 'SIGKILL');
    await second.exited;
    const third = await start();
    expect((await client(third.url).keys('*')).sort()).toEqual(['later-first', 'later-second']);
  });

  test('keeps each write it acknowledged when it is killed', async () => {
    const first = await start();
    await client(first.url).set('key', 'kept');
    process.kill(first.pid, 'SIGKILL');
    expect(await first.exited).toEqual({ code: null, signal: 'SIGKILL' });

    const second = await start();
    expect(await client(second.url).get('key')).toBe('kept');
  });

  test.each([
    ['a directory', () => dataDir],
    ['a long directory', () => longDataDir],
  ])('leaves no process and no socket in %s when it is stopped, however often', async (_, directory) => {
    const started = await start({ dataDir: directory() });
    await Promise.all([started.stop(), started.stop()]);
    await started.stop();
    expect(await started.exited).toEqual({ code: 0, signal: null });
    expect(() => process.kill(started.pid, 0)).toThrow('ESRCH');
    expect((await readdir(directory())).sort()).not.toContain('redis.pid');
    await expect(access(started.socketPath)).rejects.toThrow('ENOENT');
    if (directory() === longDataDir)
      await expect(access(dirname(started.socketPath))).rejects.toThrow('ENOENT');
  });

  test('ends when the process that started it exits without stopping it', async () => {
    const { owner, ended, socketPath } = await startInProcess(longDataDir);
    owner.stdin.end();
    await ended;
    await expect(access(dirname(socketPath))).rejects.toThrow('ENOENT');
  });
});

describe('a server that a killed process left behind', () => {
  test.each([
    ['a directory', () => dataDir],
    ['a long directory', () => longDataDir],
  ])('is ended by the next start in %s, which has its data', async (_, directory) => {
    const leftover = await startInProcess(directory());
    await client(leftover.socketPath).set('key', 'kept');
    leftover.owner.kill('SIGKILL');
    await once(leftover.owner, 'exit');

    const next = await start({ dataDir: directory() });
    await leftover.ended;
    expect(next.pid).not.toBe(leftover.pid);
    expect(await client(next.url).get('key')).toBe('kept');
  });

  test('is ended over its socket when its process id is unknown', async () => {
    const leftover = await start();
    await rm(join(dataDir, 'redis.pid'));
    await start();
    expect(await leftover.exited).toEqual({ code: 0, signal: null });
  });

  test('is told from a process that has its process id now', async () => {
    const bystander = await start({ dataDir: await mkdtemp(join(root, 'data-')) });
    await writeFile(join(dataDir, 'redis.pid'), `${bystander.pid}\n`);
    await start();
    expect(await client(bystander.url).ping()).toBe('PONG');
  });
});

describe('a start that fails', () => {
  test('says that the port is taken', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void holder.close());
    await once(holder, 'listening');
    const { port } = holder.address() as AddressInfo;
    await expect(start({ listen: { port } })).rejects.toThrow(
      /^Redis did not start: it ended with exit code 1; its log ends with: .*Address already in use/,
    );
  });

  test('says that the data cannot be read, and leaves no socket', async () => {
    // Redis 7 keeps a directory of the one name, Redis 6 a file of the other.
    const broken = ['appendonly.aof', 'appendonlydir'];
    for (const name of broken) await writeFile(join(dataDir, name), 'not what Redis wrote');
    await expect(start()).rejects.toThrow(
      /^Redis did not start: it ended with exit code 1; its log ends with: .+/,
    );
    expect((await readdir(dataDir)).sort()).toEqual([...broken, 'redis.log']);
  });

  test('says that the program is missing', async () => {
    const missing = { ...server, command: join(root, 'redis-server') };
    await expect(start({ server: missing })).rejects.toThrow(/^Redis did not start: spawn .* ENOENT$/);
  });
});

describe('finding a server', () => {
  /** A PATH with nothing on it but these programs, given as shell scripts. */
  async function path(programs: Record<string, string>): Promise<string> {
    const directory = await mkdtemp(join(root, 'bin-'));
    for (const [name, script] of Object.entries(programs)) {
      await writeFile(join(directory, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    }
    return directory;
  }

  async function find(env: NodeJS.ProcessEnv, cacheDir?: string) {
    const reports: string[] = [];
    const report = (message: string) => void reports.push(message);
    return { found: await findRedisServer({ env, cacheDir, report }), reports };
  }

  test('takes the one on the PATH and hands it no variable it does not need', async () => {
    const PATH = await path({ 'redis-server': 'echo "Redis server v=7.4.1 sha=0"' });
    const { found, reports } = await find({ PATH, HOME: root, SECRET: 'x' });
    expect(found).toEqual({ command: join(PATH, 'redis-server'), env: { PATH, HOME: root }, origin: 'path' });
    expect(reports).toEqual([]);
  });

  test('takes Valkey when Redis is too old', async () => {
    const PATH = await path({
      'redis-server': 'echo "Redis server v=6.0.16 sha=0"',
      'valkey-server': 'echo "Valkey server v=8.1.1 sha=0"',
    });
    const { found } = await find({ PATH });
    expect(found.command).toBe(join(PATH, 'valkey-server'));
  });

  test('takes nothing from the cache that others can have put there', async () => {
    const cacheDir = join(root, 'shared-cache');
    const installed = join(cacheDir, 'apt-planted');
    await mkdir(join(installed, 'usr/bin'), { recursive: true });
    const command = join(installed, 'usr/bin/redis-server');
    await writeFile(command, '#!/bin/sh\necho v=8.0.0\n', { mode: 0o755 });
    const PATH = await path({});
    await chmod(installed, 0o777);
    await expect(find({ PATH, HOME: root }, cacheDir)).rejects.toThrow(RedisServerMissingError);
    await chmod(installed, 0o755);
    expect((await find({ PATH, HOME: root }, cacheDir)).found).toMatchObject({ command, origin: 'package' });
  });

  test('uses Homebrew where there is one, and says so before', async () => {
    const PATH = await path({
      brew: `
        [ "$*" = 'install redis' ] || exit 1
        printf '#!/bin/sh\\necho v=8.0.0' > "\${0%/*}/redis-server"
        /bin/chmod +x "\${0%/*}/redis-server"`,
    });
    const { found, reports } = await find({ PATH, HOME: root });
    expect(found).toMatchObject({ command: join(PATH, 'redis-server'), origin: 'package' });
    expect(reports).toEqual(['Redis is not installed; running `brew install redis`']);
  });

  test.skipIf(!existsSync('/usr/bin/apt-get'))(
    'unpacks the package of Debian or Ubuntu in the cache, changes nothing else, and finds it there again',
    async (context) => {
      const machine = 'PATH=/usr/bin:/bin; exec';
      const PATH = await path({
        'apt-get': `${machine} apt-get "$@"`,
        'dpkg-deb': `${machine} dpkg-deb "$@"`,
      });
      const cacheDir = join(root, 'cache');
      const status = await readFile('/var/lib/dpkg/status');
      const finds = await Promise.all([find({ PATH }, cacheDir), find({ PATH }, cacheDir)]).catch((error) => {
        if (!/failed to download|is older than/.test(error.reasons)) throw error;
        return context.skip('no source of packages can be reached, or none with Redis 6.2');
      });
      expect(await readFile('/var/lib/dpkg/status')).toEqual(status);
      for (const { found, reports } of finds) {
        expect(found.origin).toBe('package');
        expect(found.command.startsWith(cacheDir)).toBe(true);
        expect(reports).toEqual([
          `Redis is not installed; unpacking its package in ${cacheDir}; nothing else changes`,
        ]);
        const { url } = await start({ server: found });
        expect(await client(url).eval('return cjson.encode({1})', 0)).toBe('[1]');
      }

      const again = await find({ PATH }, cacheDir);
      expect(finds.map(({ found }) => found)).toContainEqual(again.found);
      expect(again.reports).toEqual([]);
      expect(await readdir(cacheDir)).toHaveLength(2);
    },
  );

  test.each([
    ['nothing is at hand', {}, "Install `redis-server` with this system's package manager"],
    ['apt reaches no source', { 'apt-get': 'exit 100', 'dpkg-deb': '' }, 'apt-get install redis-server`'],
    ['Homebrew fails', { brew: 'echo no network >&2; exit 1' }, 'Run `brew install redis`'],
  ])('ends with one error that names the command to run when %s', async (_, programs, remedy) => {
    const failure = await find({ PATH: await path(programs), HOME: root }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RedisServerMissingError);
    const { message, reasons } = failure as RedisServerMissingError;
    expect(message).toMatch(/^Redis 6\.2 or newer is not installed and could not be fetched\. .+ REDIS_URL/);
    expect(message).toContain(remedy);
    expect(reasons).toContain('build: `make` is not on the PATH');
  });
});
