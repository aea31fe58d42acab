import { chmod } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installations, libraryPathOf, unpackDebianPackages } from './debian-packages.ts';
import { executables, firstSuccess, onPath, run } from './programs.ts';

const VERSION_CHECK_TIMEOUT_MS = 10_000;
const BUILD_TIMEOUT_MS = 300_000;

/** redis-memory-server's name for the newest release and for its build directory. */
const BUILD_VERSION = 'stable';

/** Paths of a server in an entry of the cache directory: an unpacked package or a build. */
const CACHED_SERVERS = ['usr/bin/redis-server', 'usr/bin/valkey-server', 'redis-server'];

/** The package that holds the server's link and the one that holds its binary, the preferred pair first. */
const APT_PACKAGES = [
  ['redis-server', 'redis-tools'],
  ['valkey-server', 'valkey-tools'],
] as const;

/** The first one on the PATH is the system's. apt does not install, see `fromApt`. */
const PACKAGE_MANAGERS: readonly PackageManager[] = [
  { command: 'apt-get', byHand: 'apt-get install redis-server', needsRoot: true },
  { command: 'apk', byHand: 'apk add redis', needsRoot: true, install: 'add --no-cache' },
  { command: 'dnf', byHand: 'dnf install redis', needsRoot: true, install: 'install -y' },
  { command: 'brew', byHand: 'brew install redis', needsRoot: false, install: 'install' },
];

interface PackageManager {
  readonly command: string;
  readonly byHand: string;
  readonly needsRoot: boolean;
  /** Arguments before the name of the package to install: redis or, if that fails, valkey. */
  readonly install?: string;
}

export interface RedisServer {
  /** Absolute path of a `redis-server` or `valkey-server`, at least version 6.2. */
  readonly command: string;
  /** The complete environment to run it with; contains no secret. */
  readonly env: NodeJS.ProcessEnv;
  readonly origin: 'path' | 'package' | 'download';
}

export interface FindRedisServerOptions {
  /** Gives PATH, HOME and XDG_CACHE_HOME, and is the environment of package managers. */
  readonly env: NodeJS.ProcessEnv;
  /** Private installations go here. Default: `orc/redis-server` in XDG_CACHE_HOME or `~/.cache`. */
  readonly cacheDir?: string | undefined;
  /** Accept only this server; it is then installed with apt or not at all. Default: either. */
  readonly name?: 'redis-server' | 'valkey-server' | undefined;
  /** Called with a line for people before each step that takes seconds or more. */
  readonly report: (message: string) => void;
}

type Search = FindRedisServerOptions & { readonly cacheDir: string };

/** There is no Redis server and none could be installed; the message names the command to run. */
export class RedisServerMissingError extends Error {
  override readonly name = 'RedisServerMissingError';
  /** One reason per failed step, in order. */
  readonly reasons: readonly string[];

  constructor(remedy: string, causes: readonly Error[]) {
    super(
      `Redis 6.2 or newer is not installed and could not be fetched. ${remedy}, or set REDIS_URL to a running Redis.`,
      { cause: new AggregateError(causes) },
    );
    this.reasons = causes.map(({ message }) => message);
  }
}

/**
 * Finds a Redis server on this machine, or fetches one: from the PATH, else the cache directory, else the system's package
 * manager, else built by redis-memory-server. With apt, only the cache directory changes and root is not needed. Safe to
 * call from several processes at the same time.
 *
 * @throws RedisServerMissingError
 */
export async function findRedisServer(options: FindRedisServerOptions): Promise<RedisServer> {
  const { env, cacheDir = defaultCacheDir(env), name } = options;
  const causes: Error[] = [];
  const steps = [fromPath, fromCache, fromApt, ...(name ? [] : [fromPackageManager, fromBuild])];
  for (const step of steps) {
    try {
      const server = await step({ ...options, cacheDir: resolve(cacheDir) });
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
  for (const root of await installations(search.cacheDir)) {
    // A server that no longer runs, for example after a system upgrade, is ignored.
    const server = await cachedServer(root, search).catch(() => undefined);
    if (server) return server;
  }
  return undefined;
}

/** The server in one entry of the cache directory. */
async function cachedServer(root: string, { env, name }: Search): Promise<RedisServer | undefined> {
  const libraryPath = await libraryPathOf(root);
  const serverEnv = libraryPath ? { ...env, LD_LIBRARY_PATH: libraryPath } : env;
  const commands = await executables(
    CACHED_SERVERS.filter((path) => path.endsWith(name ?? '')).map((path) => join(root, path)),
  );
  const origin = basename(root) === BUILD_VERSION ? 'download' : 'package';
  return firstUsable(commands.map((command) => ({ command, env: serverEnv, origin })));
}

/** Unpacks the distribution's package into the cache: without root, a service or changes elsewhere. */
async function fromApt(search: Search): Promise<RedisServer | undefined> {
  const { env, cacheDir, name, report } = search;
  const root = await unpackDebianPackages({
    env,
    cacheDir,
    alternatives: APT_PACKAGES.filter(([server]) => server.endsWith(name ?? '')),
    onStart: () =>
      report(`Redis is not installed; unpacking its package in ${cacheDir}; nothing else changes`),
    isUsable: async (unpacked) => (await cachedServer(unpacked, search)) !== undefined,
  });
  return root === undefined ? undefined : cachedServer(root, search);
}

async function fromPackageManager(search: Search): Promise<RedisServer | undefined> {
  const { env, report } = search;
  const system = await firstManager(env, ({ install }) => install !== undefined);
  if (!system) return undefined;
  const { command, needsRoot, install, path } = system;
  if (needsRoot && !isRoot()) throw new Error(`${command}: only root can install packages`);
  return firstSuccess(['redis', 'valkey'], async (name) => {
    const args = `${install} ${name}`;
    report(`Redis is not installed; running \`${command} ${args}\``);
    await run(path, args.split(' '), { ...env, HOMEBREW_NO_AUTO_UPDATE: '1' });
    const server = await fromPath(search);
    if (!server) throw new Error(`${command}: the installed server is not on the PATH`);
    return { ...server, origin: 'package' };
  });
}

/**
 * Builds Redis from source with the install script of redis-memory-server. As a library it would print, hold a lock as long
 * as this process lives, and could not be stopped.
 */
async function fromBuild(search: Search): Promise<RedisServer | undefined> {
  const { env, cacheDir, report } = search;
  for (const tool of ['make', 'cc']) {
    if ((await onPath(env, tool)).length === 0) throw new Error(`build: \`${tool}\` is not on the PATH`);
  }
  const script = findBuildScript();
  report(`Redis is not installed; building it in ${cacheDir}, which takes a few minutes`);
  const settings = {
    REDISMS_DOWNLOAD_DIR: cacheDir,
    REDISMS_VERSION: BUILD_VERSION,
    // Without it, redis-memory-server does not verify the host's certificate.
    npm_config_strict_ssl: 'true',
  };
  await run(process.execPath, [script], { ...env, ...settings }, BUILD_TIMEOUT_MS);
  const built = join(cacheDir, BUILD_VERSION);
  // A build that a group can write to is not accepted from the cache.
  await chmod(built, 0o755);
  return cachedServer(built, search);
}

/** Only a checkout has it, and a lock file that verifies it. */
function findBuildScript(): string {
  try {
    return fileURLToPath(import.meta.resolve('redis-memory-server/scripts/postinstall.js'));
  } catch (cause) {
    throw new Error('build: redis-memory-server comes with a checkout of orc only', { cause });
  }
}

/** @throws when there are candidates but none runs or is recent enough */
async function firstUsable(candidates: readonly RedisServer[]): Promise<RedisServer | undefined> {
  if (candidates.length === 0) return undefined;
  return firstSuccess(candidates, async ({ command, env, origin }) => {
    // Only what a wrapper script or the loader may need: Redis must not get this process's secrets.
    const { PATH, HOME, LD_LIBRARY_PATH } = env;
    const server = { command, env: { PATH, HOME, LD_LIBRARY_PATH }, origin };
    const output = await run(command, ['--version'], server.env, VERSION_CHECK_TIMEOUT_MS);
    const [, major, minor] = /\bv=(\d+)\.(\d+)/.exec(output) ?? [];
    if (Number(major) > 6 || (Number(major) === 6 && Number(minor) >= 2)) return server;
    throw new Error(`${command}: version ${major}.${minor} is older than 6.2`);
  });
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
