import { expect, test } from 'vitest';
import { checkCore } from './core.ts';
import { checkFailover } from './failover.ts';
import { startClusterGroup } from './groups.ts';
import { openInstallation } from './installation.ts';

const PREFIX = 'in-a-cluster';

async function open() {
  const group = await startClusterGroup(PREFIX);
  return { group, installation: await openInstallation({ REDIS_URL: group.url, REDIS_PREFIX: PREFIX }) };
}

test("a cluster runs what one Redis runs, and goes on with the replica of the master of orc's keys when that is killed", async () => {
  const { group, installation } = await open();
  await checkCore(installation);
  const master = await group.master();
  await checkFailover('cluster, master killed', installation, () => master.kill());
  expect(await group.master()).not.toBe(master);
});

test("a cluster goes on with the replica of the master of orc's keys when that falls silent", async () => {
  const { group, installation } = await open();
  const master = await group.master();
  await checkFailover('cluster, master frozen', installation, () => master.freeze());
  expect(await group.master()).not.toBe(master);
});
