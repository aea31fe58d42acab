import { setTimeout as pause } from 'node:timers/promises';
import { expect, onTestFinished } from 'vitest';
import { connect } from '../../src/store/connect.ts';
import { createStore, type Store } from '../../src/store/store.ts';
import { postTrigger } from '../support/http.ts';
import type { Installation, Writer } from './installation.ts';

const CLIENTS = 4;
/** Runs accepted before the failover, and after it. */
const RUNS = 100;

/** What one client sends in a second is bounded by this pause between two requests, in milliseconds. */
const PACE_MS = 20;

/** ACCEPT_TIMEOUT_MS, and time for the test's own processes. */
const ANSWER_WITHIN_MS = 2000 + 500;

/** Accepted again within this time; the servers take about 2 s of it to agree. */
const ACCEPTED_WITHIN_MS = 15_000;

/** A replica that is connected lags less than this far behind, in milliseconds. */
const LAG_MS = 1000;

/** How long the latest runs may take, with those that wait for a dead worker's lock to end. */
const DRAIN = { timeout: 60_000, interval: 100 };

interface Answer {
  sentAt: number;
  answeredAt: number;
  status: number;
  runId: string | undefined;
}

interface FailoverFigures {
  accepted: number;
  /** Answered 503. */
  refused: number;
  /** From the failure to the first answer 202 to a request that was sent after it. */
  acceptedAgainAfterMs: number;
  /** From the failure to the first execution of a run that was accepted after it. */
  executedAgainAfterMs: number;
  /** Accepted, never executed, and gone from Redis. */
  lost: number;
  /** Executed, and gone from Redis, so that they are not listed. */
  forgotten: number;
  /** Executed more than once. */
  repeated: number;
}

/**
 * Triggers without a pause while `fail` takes the master away, until runs are accepted again. Every answer is held
 * against the contract, and every 202 against what was executed.
 */
async function failOverUnderLoad(
  installation: Installation,
  writer: Writer,
  fail: () => Promise<void> | void,
): Promise<FailoverFigures> {
  const answers: Answer[] = [];
  const linesBefore = (await writer.lines()).length;
  let isOver = false;
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!isOver) {
      answers.push(await send(installation.api.url, writer));
      await pause(PACE_MS);
    }
  });
  const accepted = () => answers.filter(({ status }) => status === 202);
  let failedAt = Number.POSITIVE_INFINITY;
  const acceptedAgain = () => accepted().filter(({ sentAt }) => sentAt > failedAt);
  try {
    await expect.poll(() => accepted().length, { timeout: 20_000 }).toBeGreaterThan(RUNS);
    await fail();
    failedAt = performance.now();
    await expect.poll(() => acceptedAgain().length, { timeout: 40_000, interval: 20 }).toBeGreaterThan(0);
    const [first] = acceptedAgain();
    await expect.poll(() => writer.lines(), { timeout: 40_000, interval: 20 }).toContain(first?.runId);
    const executedAgainAfterMs = performance.now() - failedAt;
    await expect.poll(() => acceptedAgain().length, { timeout: 40_000 }).toBeGreaterThan(RUNS);
    isOver = true;
    await Promise.all(clients);
    const account = await accountFor(installation, writer, accepted(), linesBefore, failedAt);
    return {
      accepted: accepted().length,
      refused: answers.length - accepted().length,
      acceptedAgainAfterMs: Math.round((first?.answeredAt ?? Number.NaN) - failedAt),
      executedAgainAfterMs: Math.round(executedAgainAfterMs),
      ...account,
    };
  } finally {
    isOver = true;
    await Promise.allSettled(clients);
  }
}

async function send(origin: string, { slug, key }: Writer): Promise<Answer> {
  const sentAt = performance.now();
  const { status, headers, body } = await postTrigger(origin, slug, key);
  const answeredAt = performance.now();
  if (status !== 202) {
    expect(body).toMatchObject({ statusCode: 503, error: 'queue_unavailable' });
    expect(status).toBe(503);
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  }
  expect(answeredAt - sentAt).toBeLessThan(ANSWER_WITHIN_MS);
  return { sentAt, answeredAt, status, runId: status === 202 ? String(body['runId']) : undefined };
}

/** What an installation has in Redis; closed with the test. */
export function openStore({ env }: Installation): Store {
  const redis = connect(String(env['REDIS_URL']), 'patient', () => undefined);
  const store = createStore(redis, String(env['REDIS_PREFIX']), () => undefined);
  onTestFinished(() => store.close());
  return store;
}

/** Waits until each run that Redis knows has ended. */
async function accountFor(
  installation: Installation,
  writer: Writer,
  accepted: Answer[],
  linesBefore: number,
  failedAt: number,
): Promise<Pick<FailoverFigures, 'lost' | 'forgotten' | 'repeated'>> {
  const store = openStore(installation);
  const runs = new Map<string, string>();
  await expect
    .poll(async () => {
      for (const { runId = '' } of accepted) {
        if (runs.get(runId) === 'succeeded') continue;
        runs.set(runId, (await store.runs.get(runId))?.status ?? 'unknown');
      }
      return [...runs].filter(([, status]) => status !== 'succeeded' && status !== 'unknown');
    }, DRAIN)
    .toEqual([]);
  const lines = (await writer.lines()).slice(linesBefore);
  const executed = new Set(lines);
  const unknown = accepted.filter(({ runId = '' }) => runs.get(runId) === 'unknown');
  const lost = unknown.filter(({ runId = '' }) => !executed.has(runId));
  // What Redis says has succeeded was executed.
  expect([...runs].filter(([runId, status]) => status === 'succeeded' && !executed.has(runId))).toEqual([]);
  // Asynchronous replication may lose what was accepted right before the failure, and nothing else.
  expect(unknown.filter(({ answeredAt }) => Math.abs(answeredAt - failedAt) > LAG_MS)).toEqual([]);
  return {
    lost: lost.length,
    forgotten: unknown.length - lost.length,
    repeated: lines.length - executed.size,
  };
}

/** Fails a group's master over under load, prints the figures and holds them against what docs/redis.md promises. */
export async function checkFailover(
  what: string,
  installation: Installation,
  fail: () => Promise<void> | void,
): Promise<void> {
  const writer = await installation.createWriter('failover', [], 'echo "$ORC_RUN_ID" >> "$FILE"');
  const figures = await failOverUnderLoad(installation, writer, fail);
  const words = Object.entries(figures).map(([name, value]) => `${name} ${value}`);
  console.log(`${what}: ${words.join(', ')}`);
  expect(figures.acceptedAgainAfterMs).toBeLessThan(ACCEPTED_WITHIN_MS);
  expect(figures.executedAgainAfterMs).toBeLessThan(ACCEPTED_WITHIN_MS);
}
