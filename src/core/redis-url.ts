/** Where Redis is and how to log in to it, from a REDIS_URL. */
export type RedisAddress =
  | ({ topology: 'single' } & HostAndPort & RedisAccess)
  | ({ topology: 'socket'; path: string } & RedisAccess)
  | ({
      topology: 'sentinel';
      sentinels: HostAndPort[];
      /** The master's name in the Sentinels. */
      master: string;
      /** For the Sentinels; the URL's user and password are for Redis itself. */
      sentinelUsername?: string;
      sentinelPassword?: string;
    } & RedisAccess)
  | ({ topology: 'cluster'; nodes: HostAndPort[] } & RedisAccess);

export interface HostAndPort {
  host: string;
  port: number;
}

interface RedisAccess {
  tls: boolean;
  /** Number of the logical database; a cluster has only 0. */
  db: number;
  username?: string;
  password?: string;
}

/** The URL is invalid. The message continues "REDIS_URL …" and contains nothing of the URL. */
export class RedisUrlError extends Error {
  override name = 'RedisUrlError';
}

const REDIS_PORT = 6379;
const SENTINEL_PORT = 26_379;

/** Scheme, topology, user and password, hosts, path, parameters. A password may contain an unencoded @. */
const REDIS_FORM =
  /^(rediss?)(?:\+(sentinel|cluster))?:\/\/(?:([^/?#]*)@)?([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/;
const SOCKET_FORM = /^unix:\/\/(?:([^/?#]*)@)?(\/[^?#]+)(?:\?([^#]*))?$/;
const HOST_FORM = /^(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::(\d{1,5}))?$/;
/** The form of a master's name (sentinel.conf, "sentinel monitor"). */
const MASTER_FORM = /^[\w.-]+$/;

/**
 * Reads a REDIS_URL:
 *
 * - `redis://[user:password@]host[:6379][/db]`
 * - `redis+sentinel://[user:password@]host[:26379],…/master[/db][?sentinel_username=…&sentinel_password=…]`
 * - `redis+cluster://[user:password@]host[:6379],…`
 * - the three with `rediss`, for TLS
 * - `/path/of/a/socket` or `unix://[user:password@]/path/of/a/socket[?db=…]`
 *
 * @throws RedisUrlError
 */
export function parseRedisUrl(url: string): RedisAddress {
  if (url.startsWith('/')) {
    if (url.includes('?')) throw new RedisUrlError('is a path with parameters, which needs unix://');
    return { topology: 'socket', path: url, tls: false, db: 0 };
  }
  if (url.startsWith('unix://')) return parseSocketUrl(url);
  if (!/^rediss?(\+(sentinel|cluster))?:\/\//.test(url)) throw new RedisUrlError('is invalid');
  const [, scheme, topology, login, hosts = '', path = '', query] = REDIS_FORM.exec(url) ?? invalid();
  const access = { tls: scheme === 'rediss', db: 0, ...parseLogin(login) };
  if (topology === 'sentinel') return { ...access, ...parseSentinel(hosts, path, query) };
  const nodes = parseHosts(hosts, REDIS_PORT);
  parseParameters(query, []);
  if (topology === 'cluster') {
    if (path !== '' && path !== '0') throw new RedisUrlError('names a database, but a cluster has only one');
    return { ...access, topology, nodes };
  }
  const [node, ...others] = nodes;
  if (!node || others.length > 0) {
    throw new RedisUrlError('names several hosts, which needs redis+sentinel:// or redis+cluster://');
  }
  return { ...access, topology: 'single', ...node, db: parseDb(path) };
}

function parseSocketUrl(url: string): RedisAddress {
  const [, login, path = '', query] = SOCKET_FORM.exec(url) ?? invalid();
  const { db } = parseParameters(query, ['db']);
  return { topology: 'socket', path: decode(path), tls: false, db: parseDb(db), ...parseLogin(login) };
}

function parseSentinel(hosts: string, path: string, query: string | undefined) {
  const [master = '', db, ...rest] = path.split('/');
  if (!MASTER_FORM.test(master) || rest.length > 0) {
    throw new RedisUrlError("lacks the master's name, as in redis+sentinel://host:26379/mymaster");
  }
  const parameters = parseParameters(query, ['sentinel_username', 'sentinel_password']);
  const { sentinel_username: sentinelUsername, sentinel_password: sentinelPassword } = parameters;
  return {
    topology: 'sentinel' as const,
    sentinels: parseHosts(hosts, SENTINEL_PORT),
    master,
    db: parseDb(db),
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(sentinelPassword !== undefined && { sentinelPassword }),
  };
}

function parseHosts(hosts: string, defaultPort: number): HostAndPort[] {
  return hosts.split(',').map((text) => {
    const [, address, name, digits] = HOST_FORM.exec(text) ?? [];
    const host = address ?? name;
    const port = digits === undefined ? defaultPort : Number(digits);
    if (host === undefined || port < 1 || port > 65_535) invalid();
    return { host, port };
  });
}

function parseLogin(login: string | undefined): { username?: string; password?: string } {
  if (login === undefined) return {};
  const colon = login.indexOf(':');
  const password = decode(login.slice(colon + 1));
  if (colon < 0 || password === '') {
    throw new RedisUrlError('has a user without a password; a password alone is written redis://:password@…');
  }
  const username = decode(login.slice(0, colon));
  return { password, ...(username !== '' && { username }) };
}

function parseDb(text: string | undefined): number {
  if (!/^\d{0,5}$/.test(text ?? '')) throw new RedisUrlError('names a database that is not a number');
  return Number(text ?? 0);
}

/** Not URLSearchParams: it reads a plus sign as a space, and a password may contain one. */
function parseParameters(query: string | undefined, known: string[]): Record<string, string | undefined> {
  const parameters = (query ? query.split('&') : []).map((text) => {
    const [name = '', ...value] = text.split('=');
    if (!known.includes(name)) {
      throw new RedisUrlError(`has unknown parameters; known: ${known.join(', ') || 'none'}`);
    }
    return [name, decode(value.join('='))];
  });
  return Object.fromEntries(parameters);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // Without a cause, because it would quote the text.
    return invalid();
  }
}

function invalid(): never {
  throw new RedisUrlError('is not a valid URL (in a password, write / % and # as %2F %25 and %23)');
}
