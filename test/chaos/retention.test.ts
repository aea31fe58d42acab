import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import { acceptWithId, createTriggered, SUCCEEDED, startConsumer } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const RUNS = 200_000;
const KEPT = 10_000;
const AT_ONCE = 500;
const SWEPT_AFTER = 5000;
const LIMITS = { maxAgeMs: 3_600_000, maxRuns: KEPT };

/** Runs are kept for a minute in any case: these were accepted before, in milliseconds. */
const AGE_MS = 120_000;

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
    { concurrency: 50, retentionLimits: LIMITS },
  );

  async function executeUpTo(count: number): Promise<number> {
    for (let accepted = ended; accepted < count; accepted += AT_ONCE) {
      const ids = Array.from({ length: AT_ONCE }, () => `run_${uuidv7({ msecs: Date.now() - AGE_MS })}`);
      await Promise.all(ids.map((id) => acceptWithId(store, automation, id, PAYLOAD)));
      await expect.poll(() => ended, { timeout: 60_000, interval: 5 }).toBe(accepted + AT_ONCE);
      // Otherwise a fast machine would have many more runs between two turns of the workers, and Redis larger tables.
      if (accepted % SWEPT_AFTER === 0) await retention.sweep(LIMITS);
    }
    await expect.poll(() => redis.zcard(keys.openRuns('short')), { timeout: 60_000 }).toBe(0);
    await retention.sweep(LIMITS);
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
