import type { LightMyRequestResponse } from 'fastify';
import { afterAll, beforeAll, expect } from 'vitest';
import { type AppSettings, buildApp } from '../../src/api/app.ts';
import { HealthMonitor } from '../../src/api/health-monitor.ts';
import { RejectionTally } from '../../src/api/rejection-tally.ts';
import { ERRORS, type ErrorId } from '../../src/core/errors.ts';
import { createLogger, type Logger } from '../../src/logger.ts';
import { QueueOpener } from '../../src/store/queue.ts';
import { toRunAttempt } from '../../src/store/run-record.ts';
import type { Store } from '../../src/store/store.ts';
import { openTestStore } from './store.ts';

export const SETTINGS: AppSettings = {
  bodyLimitBytes: 262_144,
  acceptTimeoutMs: 2000,
  maxQueuedRuns: 100_000,
  version: '1.2.3-test',
  trustedProxies: [],
};

interface TestAppOptions {
  /** Whether a worker seems to be alive when the first health sample is taken. Default: yes. */
  hasWorker?: boolean;
  logger?: Logger;
}

/** The production app over a store of its own. For `inject`, or `listen` it. */
export function openTestApp(settings: Partial<AppSettings> = {}, options: TestAppOptions = {}) {
  const { hasWorker = true, logger = createLogger('silent', 'api') } = options;
  const store = openTestStore();
  const health = new HealthMonitor(store, () => undefined);
  const rejections = new RejectionTally(store);
  const app = buildApp({ store, health, logger, rejections, settings: { ...SETTINGS, ...settings } });
  beforeAll(async () => {
    if (hasWorker) await store.workers.beat('test-worker');
    await health.start();
    await app.ready();
  });
  afterAll(async () => {
    health.close();
    await app.close();
    await rejections.close();
  });
  return { app, store, health };
}

/** The inject options of a trigger request. */
export function trigger(
  slug: string,
  apiKey: string | undefined,
  payload?: string | Buffer,
  headers: Record<string, string> = {},
) {
  return {
    method: 'POST' as const,
    url: `/orc/api/automation-triggers/${slug}`,
    headers: {
      ...(apiKey !== undefined && { 'x-api-key': apiKey }),
      ...(payload !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(payload !== undefined && { payload }),
  };
}

/** An answer, however it was received. */
export type Answer = Pick<LightMyRequestResponse, 'statusCode' | 'headers' | 'body'>;

/** Holds an answer against the contract's error object and the catalogue; returns the body. */
export function expectError(
  answer: Answer,
  statusCode: number,
  error: ErrorId,
): { message: string; hint: string } {
  expect(`${answer.statusCode} ${answer.body}`).toContain(`${statusCode} {`);
  const body = JSON.parse(answer.body);
  expect(body).toEqual({ statusCode, error, message: expect.any(String), hint: ERRORS[error].hint });
  expect(body.message).not.toBe('');
  expect(ERRORS[error].statusCode).toBe(statusCode);
  expect(answer.headers['content-type']).toMatch(/^application\/json(; charset=utf-8)?$/);
  expect(answer.headers['cache-control']).toBe('no-store');
  return body;
}

/** Holds an answer against the contract's 202; returns the run's id. */
export function expectAccepted(answer: Answer): string {
  expect(`${answer.statusCode} ${answer.body}`).toContain('202 {');
  const body = JSON.parse(answer.body);
  expect(body).toEqual({ runId: expect.stringMatching(RUN_ID), status: 'queued' });
  expect(answer.headers['content-type']).toMatch(/^application\/json(; charset=utf-8)?$/);
  return body.runId;
}

/** `run_` and a UUIDv7 (RFC 9562, section 5.7). */
const RUN_ID = /^run_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** An accepted run as its worker is going to get it. */
export async function readRun(store: Store, runId: string) {
  const queue = await new QueueOpener(store.redis, store.keys, () => undefined).open();
  const job = await queue.getJob(runId);
  if (!job) throw new Error(`${runId} is not in the queue`);
  return toRunAttempt(job);
}
