import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { newRunId } from '../../src/store/run-id.ts';
import { openTestConsole } from '../support/console.ts';

const AUTOMATIONS = 10_000;
const BATCH = 500;

const { get, store } = openTestConsole();
const { redis, keys } = store;

/** Automations with runs, written as the scripts write them. */
async function fill(): Promise<void> {
  const queue = `${keys.queuePrefix}:runs`;
  for (let first = 0; first < AUTOMATIONS; first += BATCH) {
    const writes = redis.pipeline();
    for (let index = first; index < first + BATCH; index += 1) {
      const slug = `many-${String(index).padStart(5, '0')}`;
      const runId = newRunId();
      const action = JSON.stringify({ type: 'command', argv: ['true'], env: {}, passEnv: [] });
      writes.hset(keys.automation(slug), {
        id: `id-${index}`,
        action,
        enabled: index % 10 === 0 ? 0 : 1,
        name: slug,
        concurrency: 1,
      });
      writes.zadd(keys.automations, 0, slug);
      // Each has a lane, in which a run waits.
      writes.hset(keys.lanes, `id-${index}`, slug);
      writes.zadd(keys.lane(`id-${index}`), 0, runId);
      writes.zadd(keys.openRuns(slug), 0, runId);
      writes.zadd(keys.openRuns(), 0, runId);
      const failedId = newRunId();
      writes.zadd(keys.endedRuns(slug), 0, failedId);
      writes.zadd(keys.endedRuns(), 0, failedId);
      writes.zadd(keys.failedRuns(slug), Date.now(), failedId);
      writes.zadd(keys.failedRuns(), Date.now(), failedId);
      writes.hset(`${queue}:${failedId}`, {
        name: slug,
        data: '{"payload":"{}"}',
        opts: '{}',
        timestamp: Date.now(),
        finishedOn: Date.now(),
      });
      writes.zadd(`${queue}:failed`, Date.now(), failedId);
    }
    await writes.exec();
  }
}

let commands = 0;
const client = redis as Redis;
const send = client.sendCommand.bind(client);
client.sendCommand = (command, stream) => {
  commands += 1;
  return send(command, stream);
};

/** How many commands Redis was sent while a page was made. */
async function commandsOf(path: string): Promise<number> {
  commands = 0;
  expect((await get(path)).statusCode).toBe(200);
  return commands;
}

test('with ten thousand automations, every page costs Redis a bounded number of commands', async () => {
  await fill();
  for (const [path, most] of [
    ['/', 400],
    ['/?period=24h', 400],
    ['/automations', 300],
    ['/automations?filter=failing&after=many-05000', 300],
    ['/automations?search=many-099', 300],
    ['/automations/many-00001', 60],
    ['/automations/many-00001/edit', 40],
    ['/runs', 250],
    ['/runs?status=any-failure', 250],
    // Nothing is found, however far it looks.
    ['/runs?status=cancelled', 300],
    ['/runs?status=running&automation=many-00001', 40],
    ['/runs?automation=many-00001', 60],
    ['/runs?since=2d&until=1d', 60],
    ['/workers', 40],
    [`/runs/newer?newest=${newRunId()}`, 10],
    ['/audit', 20],
  ] as const) {
    expect(await commandsOf(path), path).toBeLessThan(most);
  }
});
