import { writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import {
  ConfigError,
  ConfigSchema,
  parseHeaders,
  readConfig,
  SECRET_VARIABLES,
  secretsOf,
} from '../src/config.ts';
import { readProjectFile } from './support/repository.ts';
import { openFolder } from './worker/workbench.ts';

const folder = openFolder();
const packageJson = readProjectFile('package.json');

function problemsOf(env: NodeJS.ProcessEnv): string {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return '';
}

test('an empty environment gives the defaults', () => {
  expect(readConfig({})).toEqual({
    HOST: '127.0.0.1',
    PORT: 3000,
    OPS_HOST: '127.0.0.1',
    CONSOLE_HOST: '127.0.0.1',
    CONSOLE_PORT: 3001,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
    REDIS_PREFIX: 'orc',
    LOG_LEVEL: 'info',
    BODY_LIMIT_BYTES: 262_144,
    ACCEPT_TIMEOUT_MS: 2000,
    MAX_QUEUED_RUNS: 100_000,
    WORKER_CONCURRENCY: 10,
    RUN_TIMEOUT_MS: 600_000,
    RUN_RETENTION_DAYS: 7,
    RUN_RETENTION_COUNT: 10_000,
    ARTIFACT_LIMIT_BYTES: 1_048_576,
    REPOSITORY_CACHE_BYTES: 10_737_418_240,
    SHUTDOWN_GRACE_MS: 10_000,
    version: JSON.parse(packageJson).version,
  });
});

test('what is set is read, numbers as numbers', () => {
  const env = {
    HOST: '0.0.0.0',
    PORT: '0',
    PUBLIC_URL: 'https://orc.example.com',
    FRONTEND_URL: 'https://app.example.com',
    REDIS_URL: 'rediss://user:p%40ss@redis:6380/2',
    REDIS_PREFIX: 'team-a_1',
    LOG_LEVEL: 'silent',
    TRUST_PROXY: '10.0.0.0/8, ::1',
    BODY_LIMIT_BYTES: '1',
    RUN_RETENTION_DAYS: '0.5',
    DELIVERY_DENY: 'private',
    ORC_VERSION: '9.9.9',
  };
  const { ORC_VERSION: version, ...set } = env;
  expect(readConfig(env)).toMatchObject({
    ...set,
    PORT: 0,
    BODY_LIMIT_BYTES: 1,
    RUN_RETENTION_DAYS: 0.5,
    version,
  });
});

test('a variable that is set to nothing counts as not set', () => {
  const empty = Object.fromEntries(Object.keys(ConfigSchema.properties).map((name) => [name, '']));
  expect(readConfig(empty)).toEqual(readConfig({}));
});

test('the configuration is frozen and holds nothing else of the environment', () => {
  const config = readConfig({ SECRET_OF_ANOTHER: 'x', PORT: '1' });
  expect(Object.isFrozen(config)).toBe(true);
  expect(Object.keys(config)).not.toContain('SECRET_OF_ANOTHER');
});

test('reading twice gives the same, and leaves schema and environment as they were', () => {
  const before = JSON.stringify(ConfigSchema);
  const env = Object.freeze({ PORT: '8080' });
  expect(readConfig(env)).toEqual(readConfig(env));
  expect(JSON.stringify(ConfigSchema)).toBe(before);
});

test('all problems are in one message, each with what is expected, and none with its value', () => {
  const wrong = {
    HOST: 'ok',
    PORT: '65536',
    PUBLIC_URL: 'https://s3cret.example.com/path',
    FRONTEND_URL: 's3cret',
    REDIS_URL: 's3cret',
    REDIS_PREFIX: '{s3cret}',
    LOG_LEVEL: 's3cret',
    TRUST_PROXY: 's3cret',
    BODY_LIMIT_BYTES: '0',
    ACCEPT_TIMEOUT_MS: '1.5',
    MAX_QUEUED_RUNS: 's3cret',
    WORKER_CONCURRENCY: '1001',
    RUN_TIMEOUT_MS: '99',
    RUN_RETENTION_DAYS: '0',
    SHUTDOWN_GRACE_MS: 'true',
    OPS_PORT: '65535',
    OTEL_EXPORTER_OTLP_ENDPOINT: 's3cret',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_HEADERS: 's3cret',
  };
  const [first, ...lines] = problemsOf(wrong).split('\n');
  expect(first).toBe('The environment has 18 problems:');
  const named = lines.map((line) => /^ {2}(\w+) .+: .+\.$/.exec(line)?.[1]);
  expect(named.sort()).toEqual(
    Object.keys(wrong)
      .filter((name) => name !== 'HOST')
      .sort(),
  );
  expect(lines.join('\n')).not.toContain('s3cret');
});

test.each([
  ['PORT', '-1', 'must be an integer of at least 0 and at most 65535: Port'],
  ['PORT', '3000.5', 'must be an integer of'],
  ['PORT', '0x10', 'must be an integer of'],
  ['PORT', '3000\r\n', ''],
  ['PORT', '3000 1', 'must be an integer of'],
  ['RUN_RETENTION_DAYS', '.5', ''],
  ['PORT', '', ''],
  ['MAX_QUEUED_RUNS', '0', 'must be an integer of at least 1: Runs'],
  ['RUN_RETENTION_DAYS', '0', 'must be a number above 0 and at most 365: How long'],
  ['RUN_TIMEOUT_MS', '604800001', 'must be an integer of at least 100 and at most 604800000'],
  ['LOG_LEVEL', 'INFO', 'is invalid: `trace`, `debug`'],
  ['REDIS_URL', 'localhost:6379', 'is invalid: `redis://`'],
  ['REDIS_URL', 'redis://s3cret@localhost', 'has a user without a password'],
  ['REDIS_URL', 'redis://:a/b@localhost', 'is not a valid URL (in a password, '],
  ['REDIS_URL', 'redis://localhost', ''],
  ['REDIS_URL', 'redis+sentinel://a,b/mymaster', ''],
  ['REDIS_URL', '/run/redis.sock', ''],
  ['PUBLIC_URL', 'https://user:password@example.com', 'is invalid'],
  ['PUBLIC_URL', 'https://example.com/', ''],
  ['REDIS_PREFIX', 'a:b', 'is invalid'],
])('%s=%s: %s', (name, value, problem) => {
  const problems = problemsOf({ [name]: value });
  if (problem === '') expect(problems).toBe('');
  else expect(problems).toContain(`The environment has a problem:\n  ${name} ${problem}`);
});

test.each([
  ['REDIS_URL', 'redis://:s3cret@cache'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'authorization=s3cret'],
])('%s can be a file, whose last line ends as lines do', (name, value) => {
  const path = folder(name);
  for (const end of ['', '\n', '\r\n']) {
    writeFileSync(path, value + end);
    expect(readConfig({ [`${name}_FILE`]: path })).toMatchObject({ [name]: value });
  }
  expect(readConfig({ [`${name}_FILE`]: path, [name]: '' })).toMatchObject({ [name]: value });
  expect(SECRET_VARIABLES).toContain(name);
});

test.each(SECRET_VARIABLES)(
  'what is wrong with %s_FILE is said with its path, and never with what it holds',
  (name) => {
    const wrong = folder(`wrong-${name}`);
    writeFileSync(wrong, 's3cret');
    const empty = folder(`empty-${name}`);
    writeFileSync(empty, '\n');
    const problemOf = (env: NodeJS.ProcessEnv) => {
      const problem = problemsOf(env);
      expect(problem).toMatch(/^The environment has a problem:\n {2}\w+ .+: .+\.$/);
      expect(problem).not.toContain('s3cret');
      return problem;
    };
    const file = `${name}_FILE`;
    expect(problemOf({ [file]: folder('none') })).toContain(
      `${file} names ${folder('none')}, which cannot be read (ENOENT): `,
    );
    expect(problemOf({ [file]: folder('.') })).toContain('cannot be read (EISDIR)');
    expect(problemOf({ [file]: empty })).toContain(`${file} names ${empty}, which is empty`);
    expect(problemOf({ [file]: wrong })).toContain(`  ${name} is invalid: `);
    expect(problemOf({ [file]: wrong, [name]: 'redis://:s3cret=s3cret@cache' })).toContain(
      `${file} and ${name} are both set`,
    );
    // Whoever confuses the two variables puts the secret here.
    expect(problemOf({ [file]: 's3cret' })).toContain(`${file} must be an absolute path`);
  },
);

test('the secrets among the values are known, as they are and as a URL has them', () => {
  const config = readConfig({
    REDIS_URL: 'redis+sentinel://user:pass%2Fword@a/main?sentinel_password=another-one',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20token, x-short = 1',
  });
  expect(secretsOf(config)).toEqual([
    'pass/word',
    'pass%2Fword',
    'another-one',
    'Bearer token',
    'Bearer%20token',
    'authorization=Bearer%20token, x-short = 1',
    expect.any(String),
  ]);
  expect(secretsOf(readConfig({ REDIS_URL: '/run/redis.sock' }))).toEqual([]);
});

test('headers of traces are read as OpenTelemetry reads them', () => {
  expect(parseHeaders('a=1,b = x%20y=z ,c=%zz')).toEqual({ a: '1', b: 'x y=z', c: '%zz' });
  expect(parseHeaders()).toEqual({});
});

test('the table of docs/configure.md names every variable with its default and its meaning, and no other', () => {
  const page = readProjectFile('docs/configure.md');
  const rows = page.split('\n').filter((line) => /^\| `[A-Z][A-Z_]*` \|/.test(line));
  const properties: Record<string, { default?: unknown; description?: string }> = ConfigSchema.properties;
  const expected = Object.entries(properties).map(([name, { default: value, description }]) => [
    `\`${name}\``,
    value === undefined ? '' : `\`${value}\``,
    description,
  ]);
  expect(
    rows.map((row) =>
      row
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    ),
  ).toEqual(expected);
});
