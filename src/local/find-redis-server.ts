import { execFile } from 'node:child_process';
import { access, constants, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, delimiter, isAbsolute, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const VERSION_CHECK_TIMEOUT_MS = 10_000;
const PACKAGE_TIMEOUT_MS = 120_000;
const BUILD_TIMEOUT_MS = 300_000;

/** Working directories older than this were left by a process that was killed. */
const ABANDONED_AFTER_MS = 3_600_000;

/** What redis-memory-server calls the newest release, and the directory it builds it in. */
const BUILD_VERSION = 'stable';

const WORKING_PREFIX = 'tmp-';

/** Where a server lies in an entry of the cache directory, be it an unpacked package or a build. */
const CACHED_SERVERS = ['usr/bin/redis-server', 'usr/bin/valkey-server', 'redis-server'];

/** The package that holds the server's link and the one that holds its binary, the preferred pair first. */
const APT_PACKAGES = [
  ['redis-server', 'redis-tools'],
  ['valkey-server', 'valkey-tools'],
] as const;

/** The first whose command is on the PATH is the system's; apt installs nothing, see `fromApt`. */
const PACKAGE_MANAGERS: readonly PackageManager[] = [
  { command: 'apt-get', byHand: 'apt-get install redis-server', needsRoot: true, install: [] },
  {
    command: 'apk',
    byHand: 'apk add redis',
    needsRoot: true,
    install: ['add --no-cache redis', 'add --no-cache valkey'],
  },
  {
    command: 'dnf',
    byHand: 'dnf install redis',
    needsRoot: true,
    install: ['install -y redis', 'install -y valkey'],
  },
  { command: 'brew', byHand: 'brew install redis', needsRoot: false, install: ['install redis'] },
];

interface PackageManager {
  readonly command: string;
  readonly byHand: string;
  readonly needsRoot: boolean;
  /** Arguments to try, one after the other, until one of them succeeds. */
  readonly install: readonly string[];
}

export interface RedisServer {
  /** Absolute path of a `redis-server` or `valkey-server`, at least version 6.2. */
  readonly command: string;
  /** The whole environment to run it with: nothing else is needed, and no secret is in it. */
  readonly env: NodeJS.ProcessEnv;
  readonly origin: 'path' | 'package' | 'download';
}

export interface FindRedisServerOptions {
  /** Gives PATH, HOME and XDG_CACHE_HOME, and is the environment of package managers. */
  readonly env: NodeJS.ProcessEnv;
  /** Private installations go here. Default: `orc/redis-server` in XDG_CACHE_HOME or `~/.cache`. */
  readonly cacheDir?: string | undefined;
  /** Accepts this server only; it is then installed with apt or not at all. Default: whichever there is. */
  readonly name?: 'redis-server' | 'valkey-server' | undefined;
  /** Is handed one line for people before each step that takes seconds or more. */
  readonly report: (message: string) => void;
}

type Search = FindRedisServerOptions & { readonly cacheDir: string };

/** No Redis server is here and none could be had; the message names the command to run. */
export class RedisServerMissingError extends Error {
  override readonly name = 'RedisServerMissingError';
  /** One short reason for each step that was tried, in order. */
  readonly reasons: readonly string[];

  constructor(remedy: string, causes: readonly Error[]) {
    super(
      `Redis 6.2 or newer is not installed and could not be fetched. ${remedy}, or set REDIS_URL to a Redis that is running.`,
      { cause: new AggregateError(causes) },
    );
    this.reasons = causes.map(({ message }) => message);
  }
}

/**
 * Finds a Redis server on this machine, or fetches one. It is taken from the PATH, else from the cache
 * directory, else from the system's package manager, else built by redis-memory-server. With apt nothing
 * outside the cache directory changes and root is not needed. Processes may do this at the same time.
 *
 * @throws RedisServerMissingError
 */
export async function findRedisServer({
  env,
  cacheDir = defaultCacheDir(env),
  name,
  report,
}: FindRedisServerOptions): Promise<RedisServer> {
  const causes: Error[] = [];
  const steps = [fromPath, fromCache, fromApt, ...(name ? [] : [fromPackageManager, fromBuild])];
  for (const step of steps) {
    try {
      const server = await step({ env, cacheDir: resolve(cacheDir), name, report });
      if (server) return server;
    } catch (error) {
      causes.push(error instanceof Error ? error : new Error(String(error)));
    }
  }
  throw new RedisServerMissingError(await remedy(env), causes);
}

async function fromPath({ env, name }: Search): Promise<RedisServer | undefined> {
  const commands = await onPath(env, ...(name ? [name] : ['redis-server', 'valkey-server']));
  return firstUsable(commands.map((command) => ({ command, env, origin: 'path' })));
}

async function fromCache(search: Search): Promise<RedisServer | undefined> {
  const { cacheDir } = search;
  const entries = await readdir(cacheDir).catch(() => []);
  for (const entry of entries.filter((name) => !name.startsWith(WORKING_PREFIX))) {
    // One that does not run any more, for example after an upgrade of the system, is simply passed over.
    const server = await cachedServer(join(cacheDir, entry), search).catch(() => undefined);
    if (server) return server;
  }
  return undefined;
}

/** The server in one entry of the cache directory. */
async function cachedServer(root: string, { env, name }: Search): Promise<RedisServer | undefined> {
  const libraries = await Promise.all(
    ['usr/lib', 'lib'].map(async (path) => {
      const names = await readdir(join(root, path)).catch(() => []);
      // Debian keeps its libraries in a directory per architecture, such as `x86_64-linux-gnu`.
      return names.filter((name) => name.includes('-linux-')).map((name) => join(root, path, name));
    }),
  );
  const libraryPath = libraries.flat().join(delimiter);
  const serverEnv = libraryPath ? { ...env, LD_LIBRARY_PATH: libraryPath } : env;
  const commands = await executables(
    CACHED_SERVERS.filter((path) => path.endsWith(name ?? '')).map((path) => join(root, path)),
  );
  const origin = basename(root) === BUILD_VERSION ? 'download' : 'package';
  return firstUsable(commands.map((command) => ({ command, env: serverEnv, origin })));
}

/** Downloads the distribution's own package and unpacks it into the cache: no root, no service, no trace. */
async function fromApt(search: Search): Promise<RedisServer | undefined> {
  const { env, cacheDir, report } = search;
  const [[aptGet], [dpkgDeb]] = [await onPath(env, 'apt-get'), await onPath(env, 'dpkg-deb')];
  if (!aptGet || !dpkgDeb) return undefined;

  report(`Redis is not installed; unpacking its package in ${cacheDir}, nothing else is changed`);
  await mkdir(cacheDir, { recursive: true, mode: 0o700 });
  await removeAbandoned(cacheDir);
  const work = await mkdtemp(join(cacheDir, WORKING_PREFIX));
  try {
    const archives = await downloadPackages(aptGet, work, search);
    const root = join(work, 'root');
    for (const archive of archives) await run(dpkgDeb, ['--extract', archive, root], env);
    if (!(await cachedServer(root, search))) throw new Error('apt-get: the packages hold no Redis server');

    // A name of its own per installation, so that a process installing at the same time is not disturbed.
    const installed = join(cacheDir, basename(work).replace(WORKING_PREFIX, 'apt-'));
    await rename(root, installed);
    return await cachedServer(installed, search);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** @returns the downloaded archives: the server and those of its dependencies that the system lacks */
async function downloadPackages(aptGet: string, work: string, { env, name }: Search): Promise<string[]> {
  const archives = join(work, 'archives');
  const lists = join(work, 'lists');
  const config = join(work, 'apt.conf');
  for (const directory of [archives, lists]) await mkdir(join(directory, 'partial'), { recursive: true });
  // Hooks of the system act on the system; options on the command line cannot clear them.
  const hooks = ['Pre-Invoke', 'Post-Invoke', 'Post-Invoke-Success'];
  await writeFile(config, hooks.map((hook) => `#clear APT::Update::${hook};\n`).join(''));
  const settings = [
    'Debug::NoLocking=1',
    // Root would otherwise download as the user _apt, who may not write here.
    'APT::Sandbox::User=root',
    'Acquire::Languages=none',
    'APT::Update::Error-Mode=any',
    'Acquire::Retries=0',
    'Acquire::http::Timeout=10',
    `Dir::Cache::archives=${archives}`,
    'Dir::Cache::pkgcache=',
    'Dir::Cache::srcpkgcache=',
  ];
  const options = ['-c', config, '-qq', '-y', ...settings.flatMap((setting) => ['-o', setting])];
  const apt = (...args: string[]) => run(aptGet, [...options, ...args], { ...env, LC_ALL: 'C' });

  const download = (...listOptions: string[]) =>
    firstSuccess(
      APT_PACKAGES.filter(([server]) => server.endsWith(name ?? '')),
      async (packages) => {
        // Reinstalling makes apt fetch the named packages even if the system has one of them already.
        const args = ['install', '--download-only', '--no-install-recommends', '--reinstall', ...packages];
        await apt(...listOptions, ...args);
        const names = (await readdir(archives)).filter((name) => name.endsWith('.deb'));
        return names.map((name) => join(archives, name));
      },
    );

  try {
    return await download();
  } catch {
    // The system's lists are missing or out of date. One source of several that fails need not matter, so
    // it is the download after it that decides.
    const privateLists = ['-o', `Dir::State::lists=${lists}`];
    const updating = apt(...privateLists, 'update');
    await updating.catch(() => undefined);
    return await download(...privateLists).catch(async (error: unknown) => {
      await updating;
      throw error;
    });
  }
}

async function fromPackageManager(search: Search): Promise<RedisServer | undefined> {
  const { env, report } = search;
  const system = await firstManager(env, ({ install }) => install.length > 0);
  if (!system) return undefined;
  const { command, needsRoot, install, path } = system;
  if (needsRoot && !isRoot()) throw new Error(`${command}: only root can install packages`);
  return firstSuccess(install, async (args) => {
    report(`Redis is not installed; running \`${command} ${args}\``);
    await run(path, args.split(' '), { ...env, HOMEBREW_NO_AUTO_UPDATE: '1' });
    const server = await fromPath(search);
    if (!server) throw new Error(`${command}: what it installed is not on the PATH`);
    return { ...server, origin: 'package' };
  });
}

/**
 * Lets redis-memory-server download the source of Redis and compile it, by its install script: called as a
 * library it would print, hold a lock as long as this process lives, and could not be stopped.
 */
async function fromBuild(search: Search): Promise<RedisServer | undefined> {
  const { env, cacheDir, report } = search;
  for (const tool of ['make', 'cc']) {
    if ((await onPath(env, tool)).length === 0) throw new Error(`build: \`${tool}\` is not on the PATH`);
  }
  report(`Redis is not installed; building it in ${cacheDir}, which takes some minutes`);
  const script = fileURLToPath(import.meta.resolve('redis-memory-server/scripts/postinstall.js'));
  const settings = {
    REDISMS_DOWNLOAD_DIR: cacheDir,
    REDISMS_VERSION: BUILD_VERSION,
    // Without it redis-memory-server does not verify the certificate of the host it downloads from.
    npm_config_strict_ssl: 'true',
  };
  await run(process.execPath, [script], { ...env, ...settings }, BUILD_TIMEOUT_MS);
  return cachedServer(join(cacheDir, BUILD_VERSION), search);
}

/** @throws when there are candidates and none of them runs, or only one that is too old */
async function firstUsable(candidates: readonly RedisServer[]): Promise<RedisServer | undefined> {
  if (candidates.length === 0) return undefined;
  return firstSuccess(candidates, async ({ command, env, origin }) => {
    // Only what a wrapper script or the loader may need: a Redis has no use for this process's secrets.
    const { PATH, HOME, LD_LIBRARY_PATH } = env;
    const server = { command, env: { PATH, HOME, LD_LIBRARY_PATH }, origin };
    const output = await run(command, ['--version'], server.env, VERSION_CHECK_TIMEOUT_MS);
    const [, major, minor] = /\bv=(\d+)\.(\d+)/.exec(output) ?? [];
    if (Number(major) > 6 || (Number(major) === 6 && Number(minor) >= 2)) return server;
    throw new Error(`${command}: version ${major}.${minor} is older than 6.2`);
  });
}

/** @throws the first candidate's error when none succeeds, because the first is the preferred one */
async function firstSuccess<T, R>(
  candidates: readonly T[],
  attempt: (candidate: T) => Promise<R>,
): Promise<R> {
  const causes: unknown[] = [];
  for (const candidate of candidates) {
    try {
      return await attempt(candidate);
    } catch (error) {
      causes.push(error);
    }
  }
  throw causes[0];
}

/**
 * Runs a program to its end without input.
 *
 * @returns its standard output
 * @throws an error of one line: the program and the last thing it complained about
 */
async function run(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  timeoutMs = PACKAGE_TIMEOUT_MS,
): Promise<string> {
  const running = promisify(execFile)(command, args, { env, timeout: timeoutMs, maxBuffer: 64 * 2 ** 20 });
  running.child.stdin?.end();
  try {
    return (await running).stdout;
  } catch (error) {
    const { killed, stdout, stderr, message } = error as Error & Partial<Record<string, string>>;
    const complaint = (stderr?.trim() || stdout?.trim() || message).trim().split('\n').at(-1);
    const reason = killed ? `did not end within ${timeoutMs / 1000} s` : complaint;
    throw new Error(`${basename(command)}: ${reason}`, { cause: error });
  }
}

/** @returns the executable files of these names, by name, then in the order of the PATH */
function onPath({ PATH = '' }: NodeJS.ProcessEnv, ...names: string[]): Promise<string[]> {
  const directories = PATH.split(delimiter).filter(isAbsolute);
  return executables(names.flatMap((name) => directories.map((directory) => join(directory, name))));
}

async function executables(paths: readonly string[]): Promise<string[]> {
  const checks = paths.map(async (path) => {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  });
  const results = await Promise.allSettled(checks);
  return paths.filter((_, index) => {
    const result = results[index];
    return result?.status === 'fulfilled' && result.value;
  });
}

async function removeAbandoned(cacheDir: string): Promise<void> {
  const names = await readdir(cacheDir);
  for (const name of names.filter((entry) => entry.startsWith(WORKING_PREFIX))) {
    const path = join(cacheDir, name);
    const ageMs = Date.now() - (await stat(path).then(({ mtimeMs }) => mtimeMs, Date.now));
    if (ageMs > ABANDONED_AFTER_MS) await rm(path, { recursive: true, force: true });
  }
}

async function firstManager(
  env: NodeJS.ProcessEnv,
  filter: (manager: PackageManager) => boolean,
): Promise<(PackageManager & { path: string }) | undefined> {
  for (const manager of PACKAGE_MANAGERS.filter(filter)) {
    const [path] = await onPath(env, manager.command);
    if (path) return { ...manager, path };
  }
  return undefined;
}

async function remedy(env: NodeJS.ProcessEnv): Promise<string> {
  const system = await firstManager(env, () => true);
  if (!system) return "Install `redis-server` with this system's package manager";
  return `Run \`${system.needsRoot && !isRoot() ? 'sudo ' : ''}${system.byHand}\``;
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}

function defaultCacheDir({ XDG_CACHE_HOME, HOME }: NodeJS.ProcessEnv): string {
  return join(XDG_CACHE_HOME || join(HOME || homedir(), '.cache'), 'orc', 'redis-server');
}
