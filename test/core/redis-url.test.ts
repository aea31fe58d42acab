import { expect, test } from 'vitest';
import { parseRedisUrl, RedisUrlError } from '../../src/core/redis-url.ts';

const PLAIN = { tls: false, db: 0 };

test.each([
  ['redis://cache', { topology: 'single', host: 'cache', port: 6379, ...PLAIN }],
  ['redis://cache:1/', { topology: 'single', host: 'cache', port: 1, ...PLAIN }],
  [
    'rediss://user:p%40s%2Fs@cache:6380/15',
    {
      topology: 'single',
      host: 'cache',
      port: 6380,
      tls: true,
      db: 15,
      username: 'user',
      password: 'p@s/s',
    },
  ],
  ['redis://:a@b:c+d@[::1]:7', { topology: 'single', host: '::1', port: 7, ...PLAIN, password: 'a@b:c+d' }],
  ['/run/redis@1/redis.sock', { topology: 'socket', path: '/run/redis@1/redis.sock', ...PLAIN }],
  [
    'unix://user:secret@/run/my%20redis.sock?db=3',
    {
      topology: 'socket',
      path: '/run/my redis.sock',
      tls: false,
      db: 3,
      username: 'user',
      password: 'secret',
    },
  ],
  [
    'redis+sentinel://10.0.0.1:1,s2/my.master-1',
    {
      topology: 'sentinel',
      sentinels: [
        { host: '10.0.0.1', port: 1 },
        { host: 's2', port: 26_379 },
      ],
      master: 'my.master-1',
      ...PLAIN,
    },
  ],
  [
    'rediss+sentinel://u:p@s1/main/2?sentinel_username=watcher&sentinel_password=a%26b+c==',
    {
      topology: 'sentinel',
      sentinels: [{ host: 's1', port: 26_379 }],
      master: 'main',
      tls: true,
      db: 2,
      username: 'u',
      password: 'p',
      sentinelUsername: 'watcher',
      sentinelPassword: 'a&b+c==',
    },
  ],
  [
    'rediss+cluster://:p@n1:7000,[fd00::2],n_3.example.com:7002/0',
    {
      topology: 'cluster',
      nodes: [
        { host: 'n1', port: 7000 },
        { host: 'fd00::2', port: 6379 },
        { host: 'n_3.example.com', port: 7002 },
      ],
      tls: true,
      db: 0,
      password: 'p',
    },
  ],
])('%s is understood', (url, address) => {
  expect(parseRedisUrl(url)).toEqual(address);
});

test.each([
  ['', 'is invalid'],
  ['s3cret', 'is invalid'],
  ['http://s3cret', 'is invalid'],
  ['redis+s3cret://host', 'is invalid'],
  ['redis://', 'is not a valid URL'],
  ['redis://:6379', 'is not a valid URL'],
  ['redis://s3cret:65536', 'is not a valid URL'],
  ['redis://s3cret:0', 'is not a valid URL'],
  ['redis://:s3cr/et@host', 'is not a valid URL'],
  ['redis://:s3cr#et@host', 'is not a valid URL'],
  ['redis://:s3cr?et@host', 'is not a valid URL'],
  ['redis://:s3cret%@host', 'is not a valid URL'],
  ['redis://s3 cret', 'is not a valid URL'],
  ['redis://s3cret@host', 'has a user without a password'],
  ['redis://s3cret:@host', 'has a user without a password'],
  ['redis://host/s3cret', 'names a database that is not a number'],
  ['redis://host/0?s3cret=1', 'has unknown parameters; known: none'],
  ['redis://s3cret,host', 'names several hosts'],
  ['/run/redis.sock?password=s3cret', 'is a path with parameters'],
  ['unix://s3cret/redis.sock', 'is not a valid URL'],
  ['unix:///redis.sock?db=s3cret', 'names a database that is not a number'],
  ['unix:///redis.sock?s3cret', 'has unknown parameters; known: db'],
  ['redis+sentinel://s3cret', "lacks the master's name"],
  ['redis+sentinel://u:12/s3cret@host', "lacks the master's name"],
  ['redis+sentinel://s3cret/a/0/b', "lacks the master's name"],
  ['redis+sentinel://h/a?password=s3cret', 'known: sentinel_username, sentinel_password'],
  ['redis+sentinel://h,,s3cret/a', 'is not a valid URL'],
  ['redis+cluster://s3cret/1', 'names a database, but a cluster has only one'],
  ['redis+cluster://h?s3cret=1', 'known: none'],
])('%s is refused: it %s; nothing of it is repeated', (url, problem) => {
  let error: unknown;
  try {
    parseRedisUrl(url);
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(RedisUrlError);
  const { message, cause } = error as RedisUrlError;
  expect(message).toContain(problem);
  expect([message, cause]).toEqual([expect.not.stringContaining('s3cr'), undefined]);
});
