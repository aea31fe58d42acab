import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { hasCommand } from '../support/machine.ts';
import { runOrcProcess } from '../support/orc-process.ts';
import { makeCertificates, tlsConfig } from './certificates.ts';
import { checkCore } from './core.ts';
import { startSentinelGroup } from './groups.ts';
import { openInstallation } from './installation.ts';
import { RedisNode } from './redis-node.ts';

/** As a URL has to write it, and as the servers' configuration does. */
const PASSWORD = { encoded: 's3cr%2Ft%20%40%3A%25%23+', plain: 's3cr/t @:%#+' };

const PREFIX = 'shown';

/** The rights that docs/redis.md says a user of orc's needs. */
const RULES = `~{${PREFIX}}:* resetchannels +@all -@admin -@dangerous +info`;

test('a password and a Unix socket: the default user', async () => {
  const redis = await RedisNode.startRedis({
    config: [`requirepass "${PASSWORD.plain}"`],
    login: { password: PASSWORD.plain },
  });
  const url = `unix://:${PASSWORD.encoded}@${redis.socket}?db=3`;
  const installation = await openInstallation({ REDIS_URL: url, REDIS_PREFIX: PREFIX });
  await checkCore(installation);
  expect(await redis.command('INFO', 'keyspace')).toMatch(/db3:keys=/);
});

test('a user of its own with the rights that the documentation names, and no others', async () => {
  const config = ['user default off', `user orc on ">${PASSWORD.plain}" ${RULES}`];
  const redis = await RedisNode.startRedis({ config });
  const url = `redis://orc:${PASSWORD.encoded}@127.0.0.1:${redis.port}`;
  await checkCore(await openInstallation({ REDIS_URL: url, REDIS_PREFIX: PREFIX }));

  const env = { REDIS_URL: url, REDIS_PREFIX: 'of-others' };
  const { code, stderr } = await runOrcProcess(['runs', 'list'], { env });
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(/^orc: Redis at .* cannot be used: .*NOPERM.*\n$/),
  ]);
  const wrong = await runOrcProcess(['runs', 'list'], { env: { REDIS_URL: url.replace('s3cr', 'other') } });
  expect(wrong.stderr).toContain('WRONGPASS');
  expect(`${stderr}${wrong.stderr}`).not.toMatch(/s3cr|other%2F/);
});

const testWithOpenssl = test.skipIf(!hasCommand('openssl'));

testWithOpenssl('TLS with an own certificate authority, and one clear error without it', async () => {
  const certificates = await makeCertificates();
  const redis = await RedisNode.startRedis({ config: tlsConfig(certificates), port: 'tls' });
  const env = { REDIS_URL: `rediss://127.0.0.1:${redis.port}`, REDIS_PREFIX: PREFIX };
  const { code, stderr } = await runOrcProcess(['runs', 'list'], { env });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^orc: Redis at rediss:.* cannot be used: .*certificate.*NODE_EXTRA_CA_CERTS.*\n$/);
  await checkCore(await openInstallation({ ...env, NODE_EXTRA_CA_CERTS: certificates.authority }));
});

testWithOpenssl('TLS, Sentinels with a login and a Redis with another one', async () => {
  const certificates = await makeCertificates();
  const tls = { ca: await readFile(certificates.authority, 'utf8') };
  const group = await startSentinelGroup({
    redis: {
      port: 'tls',
      config: [
        ...tlsConfig(certificates),
        `requirepass "${PASSWORD.plain}"`,
        `masterauth "${PASSWORD.plain}"`,
      ],
      login: { tls, password: PASSWORD.plain },
    },
    sentinel: {
      port: 'tls',
      config: [
        ...tlsConfig(certificates),
        `sentinel auth-pass mymaster "${PASSWORD.plain}"`,
        'user default off',
        'user watcher on ">for Sentinels+" ~* &* +@all',
        'sentinel sentinel-user watcher',
        'sentinel sentinel-pass "for Sentinels+"',
      ],
      login: { tls, username: 'watcher', password: 'for Sentinels+' },
    },
  });
  const url = group.url.replace('redis+sentinel://', `rediss+sentinel://:${PASSWORD.encoded}@`);
  const env = {
    REDIS_URL: `${url}?sentinel_username=watcher&sentinel_password=for%20Sentinels+`,
    REDIS_PREFIX: PREFIX,
    NODE_EXTRA_CA_CERTS: certificates.authority,
  };
  await checkCore(await openInstallation(env));
});

test('Valkey runs what Redis runs', async (context) => {
  const { XDG_CACHE_HOME, HOME } = process.env;
  const server = await findRedisServer({
    env: process.env,
    // Not where `orc local` looks, which would then run sometimes the one and sometimes the other.
    cacheDir: join(XDG_CACHE_HOME || join(HOME || homedir(), '.cache'), 'orc', 'valkey-server'),
    name: 'valkey-server',
    report: () => undefined,
  }).catch((error) => {
    console.log('skipped: there is no valkey-server on the PATH, and apt has no package of it');
    return context.skip(String(error.reasons));
  });
  const redis = await RedisNode.startRedis({ server });
  expect(await redis.command('INFO', 'server')).toContain('server_name:valkey');
  const url = `redis://127.0.0.1:${redis.port}`;
  await checkCore(await openInstallation({ REDIS_URL: url, REDIS_PREFIX: PREFIX }));
});
