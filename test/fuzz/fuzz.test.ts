import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { connect } from '../../src/store/connect.ts';
import { LogJudge } from '../support/log-judge.ts';
import { memoryLogger } from '../support/memory-logger.ts';
import { newPrefix } from '../support/store.ts';
import { Fuzzer } from './fuzzer.ts';
import { countRuns, SERVICES, startTarget } from './target.ts';

const SEED = 20_260_131;

const log = memoryLogger();
const prefix = newPrefix();
const redis = connect(inject('redisUrl'), 'patient', () => undefined);
let started: Awaited<ReturnType<typeof startTarget>>;
beforeAll(async () => {
  started = await startTarget(inject('redisUrl'), prefix, log.logger);
});
afterAll(async () => {
  await started.close();
  await redis.unlink(await redis.keys(`{${prefix}}*`));
  redis.disconnect();
});

test('whatever is sent is answered as the OpenAPI document says, and every 202 has its run', async () => {
  const fuzzer = await Fuzzer.create(started.target);
  await fuzzer.round({ seed: SEED, clients: 16, exchangesPerClient: 100 });
  expect(fuzzer.tally.failure).toBeUndefined();
  expect(fuzzer.tally.requests).toBeGreaterThanOrEqual(1600);
  const judge = new LogJudge(SERVICES.length);
  for (const line of log.text) judge.take(JSON.parse(line));
  expect(judge.problem).toBeUndefined();
  expect(fuzzer.tally.resets).toBeGreaterThan(0);
  expect(fuzzer.tally.finishes).toBeGreaterThan(0);
  // Unless these are among the answers, little was tried.
  expect([...fuzzer.tally.statuses.keys()]).toEqual(
    expect.arrayContaining([200, 202, 400, 401, 403, 404, 405, 413, 414, 415, 422, 429, 431, 503]),
  );
  const { accepted, unconfirmed } = fuzzer.tally;
  const runs = await countRuns(redis, prefix);
  expect(runs).toBeGreaterThanOrEqual(accepted);
  expect(runs).toBeLessThanOrEqual(accepted + unconfirmed);
});
