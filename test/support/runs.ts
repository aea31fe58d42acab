import { expect, onTestFinished } from 'vitest';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { type AttemptResult, CANCELLED_BY_OPERATOR, type RunAttempt } from '../../src/core/run.ts';
import type { TriggeredAutomation } from '../../src/store/automations.ts';
import type { AcceptLimits } from '../../src/store/run-acceptance.ts';
import { newRunId } from '../../src/store/run-id.ts';
import type { Store } from '../../src/store/store.ts';
import { consumeRuns, type RunConsumer, type RunConsumerOptions } from '../../src/worker/consumer.ts';
import { CANCELLED } from '../../src/worker/lease.ts';
import { createAutomation } from './store.ts';

export const SUCCEEDED: AttemptResult = {
  outcome: { status: 'succeeded', reason: 'exit_code', message: 'exit code 0', exitCode: 0 },
  mayRetry: false,
};

export const FAILED: AttemptResult = {
  outcome: { status: 'failed', reason: 'exit_code', message: 'exit code 1', exitCode: 1 },
  mayRetry: false,
};

/** Creates an automation and returns what the API knows of it once a key was accepted. */
export async function createTriggered(
  store: Store,
  slug: string,
  changes: Partial<AutomationDefinition> = {},
): Promise<TriggeredAutomation> {
  const apiKey = await createAutomation(store, slug, changes);
  const authentication = await store.automations.authenticate(slug, apiKey);
  if (authentication.status !== 'authenticated') throw new Error(`${slug} is ${authentication.status}`);
  return authentication.automation;
}

/** Accepts a run and returns its id. */
export async function acceptRun(
  store: Store,
  automation: TriggeredAutomation,
  payload = '{}',
): Promise<string> {
  return acceptWithId(store, automation, newRunId(), payload);
}

/** Accepts a run with an id that the test chose. */
export async function acceptWithId(
  store: Store,
  automation: TriggeredAutomation,
  id: string,
  payload = '{}',
): Promise<string> {
  const run = { id, payload, requestId: 'test-request' };
  const verdict = await store.runs.accept(automation, run, acceptLimits());
  expect(verdict).toEqual({ status: 'accepted', runId: id });
  return id;
}

/** Limits that no test reaches. */
export function acceptLimits(): AcceptLimits {
  return { endsAt: Date.now() + 20_000, maxQueuedRuns: 1_000_000 };
}

/** The ids of the runs that a worker can take now, the next one first. */
export async function takeableRuns(store: Store): Promise<string[]> {
  // BullMQ puts new jobs at the head of this list and takes them from its end.
  return (await store.redis.lrange(`${store.keys.queuePrefix}:runs:wait`, 0, -1)).reverse();
}

/** Deletes everything, so that no run of one test is executed in another. */
export async function emptyStore({ redis, keys }: Store): Promise<void> {
  const found = await redis.keys(`${keys.queuePrefix}*`);
  if (found.length > 0) await redis.del(...found);
}

/** Waits until a run has a status. */
export async function untilStatus(store: Store, runId: string, status: string): Promise<void> {
  await expect
    .poll(async () => (await store.runs.get(runId))?.status, { timeout: 20_000, interval: 10 })
    .toBe(status);
}

/** Takes runs as a worker process does, until the test has ended. What still executes then is interrupted. */
export function startConsumer(
  store: Store,
  execute: RunConsumerOptions['execute'],
  options: Partial<RunConsumerOptions> = {},
): RunConsumer {
  const errors: Error[] = [];
  const consumer = consumeRuns({
    store,
    side: store,
    workerId: 'test-worker',
    concurrency: 10,
    retentionLimits: { maxAgeMs: 3_600_000, maxRuns: 10_000 },
    execute,
    onError: (error) => errors.push(error),
    ...options,
  });
  onTestFinished(async () => {
    await consumer.close(0);
    expect(errors).toEqual([]);
  });
  return consumer;
}

/** An `execute` whose attempts go on until the test ends them, or the consumer interrupts them. */
export class HeldAttempts {
  /** In the order in which they were started. */
  readonly started: RunAttempt[] = [];
  readonly #ends = new Map<string, (result: AttemptResult) => void>();

  readonly execute = (run: RunAttempt, signal: AbortSignal): Promise<AttemptResult | 'interrupted'> =>
    new Promise((resolve) => {
      this.started.push(run);
      this.#ends.set(run.id, resolve);
      const interrupt = () => {
        const isCancelled = signal.reason === CANCELLED;
        resolve(isCancelled ? { outcome: CANCELLED_BY_OPERATOR, mayRetry: false } : 'interrupted');
      };
      if (signal.aborted) interrupt();
      signal.addEventListener('abort', interrupt, { once: true });
    });

  get startedIds(): string[] {
    return this.started.map(({ id }) => id);
  }

  /** Waits until these runs, in this order, are all that were started. */
  async untilStarted(...runIds: string[]): Promise<void> {
    await expect.poll(() => this.startedIds, { timeout: 20_000, interval: 10 }).toEqual(runIds);
  }

  /** Ends the latest attempt of a run. */
  end(runId: string, result: AttemptResult = SUCCEEDED): void {
    const end = this.#ends.get(runId);
    if (!end) throw new Error(`${runId} was not started`);
    this.#ends.delete(runId);
    end(result);
  }
}

/** A consumer whose attempts the test ends. */
export function holdAttempts(store: Store, options: Partial<RunConsumerOptions> = {}): HeldAttempts {
  const attempts = new HeldAttempts();
  startConsumer(store, attempts.execute, options);
  return attempts;
}
