import { expect, test } from 'vitest';
import { checkCore } from './core.ts';
import { checkFailover } from './failover.ts';
import { startSentinelGroup } from './groups.ts';
import { openInstallation } from './installation.ts';

const PREFIX = 'by-sentinel';

async function open() {
  const group = await startSentinelGroup();
  return { group, installation: await openInstallation({ REDIS_URL: group.url, REDIS_PREFIX: PREFIX }) };
}

test('a master that Sentinels name runs what one Redis runs, and its replica goes on when it is killed', async () => {
  const { group, installation } = await open();
  await checkCore(installation);
  const [firstSentinel] = group.sentinels;
  await firstSentinel?.kill();
  const master = await group.master();
  await checkFailover('sentinel, master and a Sentinel killed', installation, () => master.kill());
  expect(await group.master()).not.toBe(master);
  for (const { lines } of [installation.api, installation.worker]) {
    const messages = lines.map((line) => String((JSON.parse(line) as { msg: unknown }).msg));
    expect(messages.filter((message) => message.startsWith('redis is away'))).toHaveLength(1);
    expect(messages.filter((message) => message === 'redis is back')).toHaveLength(1);
  }
});

test('the replica goes on when the master falls silent', async () => {
  const { group, installation } = await open();
  const master = await group.master();
  await checkFailover('sentinel, master frozen', installation, () => master.freeze());
  expect(await group.master()).not.toBe(master);
});
