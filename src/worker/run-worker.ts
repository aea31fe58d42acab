import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'bullmq';
import type { RunOutcome } from '../core/run.ts';
import { QUEUE_NAME, type RunJob, type RunJobData } from '../store/queue.ts';
import { traceContextIn } from '../store/run-record.ts';

/**
 * Pause before a run is asked for again after Redis refused, in milliseconds: it grows by this with each refusal in a row,
 * up to the longest. BullMQ asks again at once, thousands of times a second.
 */
const REFUSAL_PAUSE_MS = 50;
const LONGEST_REFUSAL_PAUSE_MS = 2000;

/** BullMQ's worker, which also reports the locks it has renewed, and pauses after a refusal of Redis. */
export class RunWorker extends Worker<RunJobData, RunOutcome> {
  readonly #onRenewed: (runIds: string[], askedAt: number) => void;
  readonly #closing = new AbortController();
  #refusals = 0;
  #inHand = 0;
  #onIdle = () => {};

  /** @param onRenewed is told when Redis was asked to renew the locks, by `Date.now()` */
  constructor(
    onRenewed: (runIds: string[], askedAt: number) => void,
    process: (job: RunJob, token?: string) => Promise<RunOutcome>,
    options: ConstructorParameters<typeof Worker<RunJobData, RunOutcome>>[2],
  ) {
    super(QUEUE_NAME, process, options);
    this.#onRenewed = onRenewed;
    this.once('closing', () => this.#closing.abort());
  }

  /** Takes no more runs; resolves when those in hand have ended. BullMQ's own pause takes one more run if it was waiting. */
  async drain(): Promise<void> {
    await this.pause(true);
    if (this.#inHand === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }

  protected override async moveToActive(token: string, name?: string) {
    // Without data, BullMQ finds that there is no run. It asks even when it was paused or closed while it waited for one.
    if (this.isPaused() || this.closing !== undefined) return this.nextJobFromJobData();
    const pauseMs = Math.min(this.#refusals * REFUSAL_PAUSE_MS, LONGEST_REFUSAL_PAUSE_MS);
    if (pauseMs > 0) await delay(pauseMs, undefined, { signal: this.#closing.signal }).catch(() => undefined);
    try {
      const job = await super.moveToActive(token, name);
      this.#refusals = 0;
      return job;
    } catch (error) {
      this.#refusals += 1;
      throw error;
    }
  }

  /** The trace of a run is the one in its data, whether its API process sends traces or not. */
  override async processJob(...args: Parameters<Worker<RunJobData, RunOutcome>['processJob']>) {
    const [{ data, opts }] = args;
    if (data.traceparent !== undefined) opts.telemetry = { metadata: JSON.stringify(traceContextIn(data)) };
    this.#inHand += 1;
    try {
      return await super.processJob(...args);
    } finally {
      this.#inHand -= 1;
      if (this.#inHand === 0) this.#onIdle();
    }
  }

  override async extendJobLocks(runIds: string[], tokens: string[], durationMs: number): Promise<string[]> {
    const askedAt = Date.now();
    const lost = await super.extendJobLocks(runIds, tokens, durationMs);
    const renewed = runIds.filter((runId) => !lost.includes(runId));
    this.#onRenewed(renewed, askedAt);
    return lost;
  }
}
