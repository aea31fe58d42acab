import { readFileSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { type Static, type StringOptions, type TSchema, Type } from '@sinclair/typebox';
import { Value } from '@sinclair/typebox/value';
import { MAX_TIMEOUT_MS } from './core/automation.ts';
import { PACKAGE_ROOT } from './core/package-root.ts';
import { parseRedisUrl, RedisUrlError } from './core/redis-url.ts';

const optionalText = (options: StringOptions) => Type.Optional(Type.String(options));

const origin = (description: string) => optionalText({ pattern: '^https?://[^/?#@\\s]+/?$', description });

const oneOf = <const T extends string[]>(
  values: [...T],
  options: { default: T[number]; description: string },
) =>
  Type.Union(
    values.map((value) => Type.Literal<T[number]>(value)),
    options,
  );

/** Every environment variable orc reads. The table of docs/configure.md is held against this schema by a test. */
export const ConfigSchema = Type.Object({
  HOST: Type.String({
    default: '127.0.0.1',
    minLength: 1,
    description: 'Address the API listens on. `0.0.0.0` for all interfaces',
  }),
  PORT: Type.Integer({ default: 3000, minimum: 0, maximum: 65_535, description: 'Port the API listens on' }),
  PUBLIC_URL: origin(
    'Origin of the API for callers, used in links and documents. Default: taken from the request',
  ),
  FRONTEND_URL: origin('Origin of the web client, shown in the health report'),
  REDIS_URL: optionalText({
    description:
      '`redis://`, `redis+sentinel://`, `redis+cluster://` (with `rediss`: TLS) or the path of a Unix socket, see docs/redis.md. Default: the Redis of a running `orc local`',
  }),
  REDIS_PREFIX: Type.String({
    default: 'orc',
    pattern: '^[A-Za-z0-9_-]{1,64}$',
    description: 'Separates installations that share a Redis; every key begins with it, in braces',
  }),
  LOG_LEVEL: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    description: '`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`',
  }),
  TRUST_PROXY: optionalText({
    pattern: '^[0-9A-Fa-f.:/, ]+$',
    description:
      'Addresses or networks of reverse proxies whose `X-Forwarded-*` headers are trusted, comma-separated',
  }),
  BODY_LIMIT_BYTES: Type.Integer({
    default: 262_144,
    minimum: 1,
    maximum: 67_108_864,
    description: 'Largest request body, in bytes',
  }),
  ACCEPT_TIMEOUT_MS: Type.Integer({
    default: 2000,
    minimum: 50,
    maximum: 60_000,
    description: 'How long Redis may take to accept a run before the API answers 503, in milliseconds',
  }),
  MAX_QUEUED_RUNS: Type.Integer({
    default: 100_000,
    minimum: 1,
    description:
      'Runs that may wait at the same time, over all API processes; more are answered 503 `queue_full`',
  }),
  WORKER_CONCURRENCY: Type.Integer({
    default: 10,
    minimum: 1,
    maximum: 1000,
    description: 'Runs that one worker executes at the same time',
  }),
  RUN_TIMEOUT_MS: Type.Integer({
    default: 600_000,
    minimum: 100,
    maximum: MAX_TIMEOUT_MS,
    description: 'Time limit of one attempt, unless the automation has its own `--timeout`, in milliseconds',
  }),
  RUN_RETENTION_DAYS: Type.Number({
    default: 7,
    exclusiveMinimum: 0,
    maximum: 365,
    description: 'How long ended runs and their logs are kept, in days',
  }),
  RUN_RETENTION_COUNT: Type.Integer({
    default: 10_000,
    minimum: 0,
    description: 'Ended runs to keep of each automation, unless it has its own `--keep-runs`',
  }),
  KEEP_BYTES: Type.Optional(
    Type.Integer({
      minimum: 1_048_576,
      description:
        'Memory of Redis for the logs, results and artifacts of all ended runs, in bytes; beyond it, those of the oldest runs are removed. Default: 1 GiB or, if that is less, a quarter of `maxmemory`',
    }),
  ),
  ARTIFACT_LIMIT_BYTES: Type.Integer({
    default: 1_048_576,
    minimum: 0,
    maximum: 16_777_216,
    description: 'Artifacts that are kept of one run, in bytes',
  }),
  WORKSPACE_DIR: optionalText({
    pattern: '^/',
    description:
      'Folder of a worker for the workspaces of agents and its copies of their repositories. Default: `orc` in `XDG_CACHE_HOME` or `~/.cache`',
  }),
  REPOSITORY_CACHE_BYTES: Type.Integer({
    default: 10_737_418_240,
    minimum: 0,
    description:
      'Disk space for the copies of repositories, in bytes; beyond it, the least recently used ones are removed',
  }),
  SHUTDOWN_GRACE_MS: Type.Integer({
    default: 10_000,
    minimum: 100,
    maximum: 3_600_000,
    description: 'Time for requests and runs in progress to end after SIGTERM, in milliseconds',
  }),
  DELIVERY_DENY: Type.Optional(
    Type.Literal('private', {
      description:
        '`private`: automations with a URL cannot reach private and loopback addresses. Link-local and metadata addresses are always denied',
    }),
  ),
  OPS_HOST: Type.String({
    default: '127.0.0.1',
    minLength: 1,
    description: 'Address of the private listener of each process, for monitoring',
  }),
  OPS_PORT: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 65_533,
      description:
        'Port of the private listener of `orc api`, `orc worker` or `orc console`. With `orc local`: of the API; the worker and the console use the next two. Default: no listener',
    }),
  ),
  CONSOLE_HOST: Type.String({
    default: '127.0.0.1',
    minLength: 1,
    description: 'Address the console listens on. `0.0.0.0` for all interfaces',
  }),
  CONSOLE_PORT: Type.Integer({
    default: 3001,
    minimum: 0,
    maximum: 65_535,
    description: 'Port the console listens on. With `orc local`, the default is `PORT` + 1',
  }),
  CONSOLE_URL: origin(
    'Origin of the console for operators, used in login links; other names than this and `localhost` are refused. Default: `http://localhost` with `CONSOLE_PORT`',
  ),
  CONSOLE_TRUST_PROXY: optionalText({
    pattern: '^[0-9A-Fa-f.:/, ]+$',
    description:
      'Addresses or networks of reverse proxies before the console whose `X-Forwarded-For` and `CONSOLE_USER_HEADER` are trusted, comma-separated',
  }),
  CONSOLE_USER_HEADER: optionalText({
    pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
    description:
      'Header in which a single sign-on proxy names the operator, such as `X-Forwarded-User`. Requires `CONSOLE_TRUST_PROXY`',
  }),
  OTEL_EXPORTER_OTLP_ENDPOINT: optionalText({
    pattern: '^https?://',
    description: 'Receiver of traces, OTLP over HTTP, such as `http://127.0.0.1:4318`. Default: no traces',
  }),
  OTEL_EXPORTER_OTLP_PROTOCOL: oneOf(['http/protobuf', 'http/json'], {
    default: 'http/protobuf',
    description: '`http/protobuf` or `http/json`',
  }),
  OTEL_EXPORTER_OTLP_HEADERS: optionalText({
    pattern: '^\\s*[^\\s=,]+\\s*=',
    description:
      'Headers sent with traces, such as `authorization=Bearer%20…`; comma-separated, values percent-encoded',
  }),
  ORC_VERSION: optionalText({
    minLength: 1,
    description: 'Version shown in the health report. Default: the version of the package',
  }),
});

/**
 * The variables that hold a secret. `NAME_FILE` may name a file with the value instead: child processes and tools that
 * inspect containers see the environment, but not the file.
 */
export const SECRET_VARIABLES = ['REDIS_URL', 'OTEL_EXPORTER_OTLP_HEADERS'] as const;

const properties: Record<string, TSchema> = ConfigSchema.properties;

type Variables = Static<typeof ConfigSchema>;

export type Config = Readonly<Omit<Variables, 'ORC_VERSION'> & { version: string }>;

/** A decimal number; environment files may leave a line break at its end. */
const DECIMAL = /^\s*-?(\d+\.?\d*|\.\d+)\s*$/;

/** The environment is invalid. The message lists every problem and no value. */
export class ConfigError extends Error {
  override name = 'ConfigError';
}

/**
 * Reads and checks the environment.
 *
 * @throws ConfigError that names every invalid variable and what it must be
 */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const problems = new Map<string, string>();
  const values = valuesOf({ ...env, ...readSecretFiles(env, problems) });
  for (const { path, schema } of Value.Errors(ConfigSchema, values)) {
    problems.set(path.slice(1), expectationOf(schema));
  }
  const redisUrlProblem = problemOfRedisUrl(values.REDIS_URL);
  if (redisUrlProblem) problems.set('REDIS_URL', redisUrlProblem);
  if (values.CONSOLE_USER_HEADER !== undefined && values.CONSOLE_TRUST_PROXY === undefined) {
    problems.set('CONSOLE_TRUST_PROXY', 'is missing, without which anybody could send CONSOLE_USER_HEADER');
  }
  if (problems.size > 0) throw new ConfigError(describeProblems(problems));
  const { ORC_VERSION, ...config } = values;
  return Object.freeze({ ...config, version: ORC_VERSION ?? packageVersion() });
}

/**
 * The environment's values with numbers and defaults; their types are right only if the environment is valid. A variable
 * that compose files and CI systems set to an empty text counts as not set.
 */
function valuesOf(env: NodeJS.ProcessEnv): Variables {
  const values: Record<string, unknown> = {};
  for (const [name, { type }] of Object.entries(properties)) {
    const text = env[name];
    // Not by Value.Convert, for which "true" is 1, "0x10" is 0, and the integer "3000.5" is 3000.
    if (text) values[name] = isNumber(type) && DECIMAL.test(text) ? Number(text) : text;
  }
  return Value.Default(ConfigSchema, values) as Variables;
}

/** The secrets in the files that the environment names; adds what is wrong with the files to the problems. */
function readSecretFiles(env: NodeJS.ProcessEnv, problems: Map<string, string>): NodeJS.ProcessEnv {
  const secrets: NodeJS.ProcessEnv = {};
  for (const name of SECRET_VARIABLES) {
    const variable = `${name}_FILE`;
    const path = env[variable];
    if (!path) continue;
    if (env[name]) problems.set(variable, `and ${name} are both set; set only one of them`);
    // The value is not shown: it may be the secret itself, set without _FILE in mind.
    else if (!isAbsolute(path)) problems.set(variable, 'must be an absolute path');
    else {
      try {
        secrets[name] = readFileSync(path, 'utf8').replace(/[\r\n]+$/, '');
        if (secrets[name] === '') problems.set(variable, `names ${path}, which is empty`);
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        problems.set(variable, `names ${path}, which cannot be read (${code})`);
      }
    }
  }
  return secrets;
}

const isNumber = (type: unknown) => type === 'integer' || type === 'number';

/** What is wrong with a value. Numbers are told their range; for others, the description says what is expected. */
function expectationOf({ type, minimum, exclusiveMinimum, maximum }: TSchema): string {
  if (!isNumber(type)) return 'is invalid';
  const least = exclusiveMinimum === undefined ? `of at least ${minimum}` : `above ${exclusiveMinimum}`;
  const most = maximum === undefined ? '' : ` and at most ${maximum}`;
  return `must be ${type === 'integer' ? 'an integer' : 'a number'} ${least}${most}`;
}

function problemOfRedisUrl(url: string | undefined): string | undefined {
  try {
    if (url !== undefined) parseRedisUrl(url);
  } catch (error) {
    if (error instanceof RedisUrlError) return error.message;
    throw error;
  }
  return undefined;
}

/** Shorter values may also occur in other texts. */
const MIN_SECRET_LENGTH = 8;

/** The secrets among the values, which must not appear in the log. */
export function secretsOf({ REDIS_URL, OTEL_EXPORTER_OTLP_HEADERS }: Config): string[] {
  const headers = Object.values(parseHeaders(OTEL_EXPORTER_OTLP_HEADERS));
  const secrets = [REDIS_URL && passwordsOf(REDIS_URL), headers, OTEL_EXPORTER_OTLP_HEADERS];
  const texts = secrets.flat().filter((text) => text !== undefined && text.length >= MIN_SECRET_LENGTH);
  return [...new Set(texts.flatMap((text) => [text as string, encodeURIComponent(text as string)]))];
}

function passwordsOf(url: string): (string | undefined)[] {
  const { password, ...address } = parseRedisUrl(url);
  return [password, address.topology === 'sentinel' ? address.sentinelPassword : undefined];
}

/** Parses `OTEL_EXPORTER_OTLP_HEADERS` as OpenTelemetry's specification describes it. */
export function parseHeaders(text = ''): Record<string, string> {
  const headers = text.split(',').flatMap((pair) => {
    const [, name, value] = /^\s*([^\s=]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? [];
    return name === undefined || value === undefined ? [] : [[name, decodeIfEncoded(value)]];
  });
  return Object.fromEntries(headers);
}

function decodeIfEncoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The console's origin for operators, without a slash at its end. */
export function consoleUrlOf({ CONSOLE_URL, CONSOLE_PORT }: Config): string {
  return (CONSOLE_URL ?? `http://localhost:${CONSOLE_PORT}`).replace(/\/$/, '');
}

/** The process's environment, for code that passes parts of it to child processes. */
export function processEnvironment(): Readonly<NodeJS.ProcessEnv> {
  return process.env;
}

/** One line per variable: what is wrong with it, and what it is for. */
function describeProblems(problems: ReadonlyMap<string, string>): string {
  const lines = [...problems].map(
    ([name, problem]) => `  ${name} ${problem}: ${properties[name.replace(/_FILE$/, '')]?.description}.`,
  );
  return `The environment has ${lines.length === 1 ? 'a problem' : `${lines.length} problems`}:\n${lines.join('\n')}`;
}

/** The version of the package. */
export function packageVersion(): string {
  const text = readFileSync(new URL('package.json', PACKAGE_ROOT), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
