import { expect, test } from 'vitest';
import { acceptRun, createTriggered, SUCCEEDED, startConsumer } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const RUNS = 200_000;
const KEPT = 10_000;
const AT_ONCE = 500;

/** Redis' memory for a run with a payload and an output of 200 bytes each, and a prefix of 41 characters. */
const RUN_BYTES = 2900;

const PAYLOAD = JSON.stringify({ text: 'x'.repeat(200) });

const store = openTestStore();
const { redis, keys, retention } = store;

async function usedMemory(): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
}

test(`the memory of Redis stays where it is while ${RUNS} short runs end of which ${KEPT} may be kept`, async () => {
  const automation = await createTriggered(store, 'short');
  let ended = 0;
  const data = Buffer.from('y'.repeat(200));
  startConsumer(
    store,
    async ({ id }) => {
      const entry = { time: new Date(), attempt: 1, source: 'stdout', offset: 0, data } as const;
      await store.runLogs.append(id, [entry], [], 3600);
      ended += 1;
      return SUCCEEDED;
    },
    { concurrency: 50, retentionLimits: { maxAgeMs: 3_600_000, maxRuns: KEPT } },
  );

  async function executeUpTo(count: number): Promise<number> {
    for (let accepted = ended; accepted < count; accepted += AT_ONCE) {
      await Promise.all(Array.from({ length: AT_ONCE }, () => acceptRun(store, automation, PAYLOAD)));
      await expect.poll(() => ended, { timeout: 60_000, interval: 5 }).toBe(accepted + AT_ONCE);
    }
    await expect.poll(() => redis.zcard(keys.openRuns('short')), { timeout: 60_000 }).toBe(0);
    await retention.sweep({ maxAgeMs: 3_600_000, maxRuns: KEPT });
    expect(await redis.zcard(keys.endedRuns('short'))).toBe(KEPT);
    return usedMemory();
  }

  const empty = await usedMemory();
  const early = await executeUpTo(2 * KEPT);
  const late = await executeUpTo(RUNS);
  const megabytes = (bytes: number) => `${(bytes / 1_048_576).toFixed(1)} MiB`;
  console.log(
    `Redis: ${megabytes(empty)} empty, ${megabytes(early)} after ${2 * KEPT} runs, ${megabytes(late)} after ${RUNS}; ` +
      `${Math.round((late - empty) / KEPT)} bytes for each run that is kept`,
  );
  expect(late / early).toBeLessThan(1.05);
  expect((late - empty) / KEPT).toBeLessThan(RUN_BYTES);
});
