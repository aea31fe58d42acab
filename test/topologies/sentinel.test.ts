import { expect, onTestFinished, test } from 'vitest';
import { getHealth, postTrigger } from '../support/http.ts';
import { runOrcProcess } from '../support/orc-process.ts';
import { checkCore } from './core.ts';
import { checkFailover, openStore } from './failover.ts';
import { startSentinelGroup } from './groups.ts';
import { openInstallation, untilSucceeded } from './installation.ts';

const PREFIX = 'by-sentinel';

/** More than a connection's two ends hold, in bytes. */
const SOCKET_BUFFERS = 24_000_000;

async function open(config: string[] = []) {
  const group = await startSentinelGroup({ redis: { config } });
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

test('what the replica had not received is lost with its master, and nothing else', async () => {
  const { group, installation } = await open();
  const { api, worker } = installation;
  const { key } = await installation.createWriter('work', [], 'true');
  const accept = async (payload = '{}') => {
    const { status, body } = await postTrigger(api.url, 'work', key, payload);
    return status === 202 ? String(body['runId']) : undefined;
  };
  worker.child.kill('SIGSTOP');
  onTestFinished(() => void worker.child.kill('SIGCONT'));
  const received = await accept();
  const master = await group.master();
  await expect
    .poll(() => group.replica.command('DBSIZE'), { timeout: 5000 })
    .toBe(await master.command('DBSIZE'));

  group.replica.freeze();
  // What the systems' buffers hold reaches the replica later, whatever becomes of the master.
  const filler = JSON.stringify({ filler: 'x'.repeat(250_000) });
  for (let sent = 0; sent < SOCKET_BUFFERS; sent += filler.length) expect(await accept(filler)).toBeDefined();
  const unreceived = [await accept(), await accept(), await accept()];
  expect(unreceived).not.toContain(undefined);
  await master.kill();
  group.replica.thaw();
  let after: string | undefined;
  await expect.poll(async () => (after ??= await accept()), { timeout: 20_000, interval: 50 }).toBeDefined();

  worker.child.kill('SIGCONT');
  await untilSucceeded(installation, received);
  await untilSucceeded(installation, after);
  const store = openStore(installation);
  for (const runId of unreceived) expect(await store.runs.get(String(runId))).toBeUndefined();
});

test('with min-replicas-to-write, a master without its replica accepts nothing until that is back', async () => {
  const { group, installation } = await open(['min-replicas-to-write 1', 'min-replicas-max-lag 2']);
  const { key } = await installation.createWriter('work', [], 'true');
  const send = () => postTrigger(installation.api.url, 'work', key);
  expect((await send()).status).toBe(202);
  group.replica.freeze();
  await expect.poll(async () => (await send()).status, { timeout: 10_000, interval: 50 }).toBe(503);
  await expect.poll(async () => (await getHealth(installation.api.url)).status, { timeout: 5000 }).toBe(503);
  expect((await send()).body).toMatchObject({ statusCode: 503, error: 'queue_unavailable' });
  group.replica.thaw();
  await expect.poll(async () => (await send()).status, { timeout: 20_000, interval: 50 }).toBe(202);
});

test('a master that no Sentinel knows, and Sentinels that are away, are one clear error each', async () => {
  const { url, sentinels } = await startSentinelGroup();
  const unknown = await runOrcProcess(['runs', 'list'], {
    env: { REDIS_URL: url.replace('mymaster', 'other') },
  });
  expect(unknown).toMatchObject({ code: 1, stdout: '' });
  expect(unknown.stderr).toMatch(
    /^orc: Redis at redis\+sentinel:\S+\/other cannot be used: no Sentinel knows a master named other\. Check that the Sentinels .*\n$/,
  );
  const [first, ...others] = sentinels;
  first?.freeze();
  await Promise.all(others.map((sentinel) => sentinel.kill()));
  const started = performance.now();
  const away = await runOrcProcess(['runs', 'list'], { env: { REDIS_URL: url } });
  expect(performance.now() - started).toBeLessThan(6000);
  expect(away.stderr).toMatch(
    /^orc: Redis at \S+ cannot be used: no Sentinel can be used \(.+\)\. Check that the Sentinels .*\n$/,
  );
});
