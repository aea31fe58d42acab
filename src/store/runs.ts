import { Job, type JobsOptions, type JobType } from 'bullmq';
import { v7 as uuidv7 } from 'uuid';
import { isTerminal, type Run, type RunAttempt, type RunOutcome, type RunStatus } from '../core/run.ts';
import type { TriggeredAutomation } from './automations.ts';
import type { IdempotencyStore, IdempotentRequest } from './idempotency.ts';
import { PARKED_MS, type RunLanes } from './lanes.ts';
import { BACKOFF_TYPE, type BullQueue, type QueueOpener, type RunJob, type RunJobData } from './queue.ts';

const RUN_ID = /^run_[0-9a-f-]{36}$/;

/** `orc runs list` looks at this many runs per status at most before it gives up finding more that match. */
const LIST_SCAN_LIMIT = 10_000;
const LIST_PAGE = 200;

export interface RunFilter {
  automation?: string;
  status?: RunStatus;
  /** How many runs at most. */
  limit: number;
}

/** A run that is about to be accepted. */
export interface NewRun {
  /** From {@link newRunId}. */
  id: string;
  /** JSON text of an object, valid UTF-8. */
  payload: string;
  requestId: string;
  traceparent?: string;
  idempotency?: IdempotentRequest;
}

/** `run_` and a UUIDv7, so that ids sort by their time. */
export function newRunId(): string {
  return `run_${uuidv7()}`;
}

/**
 * The queue of runs. A run is one BullMQ job whose id is the run's id; BullMQ's state of the job is the only place
 * where a run's status is kept.
 */
export class RunQueue {
  readonly #queue: QueueOpener;
  readonly #lanes: RunLanes;
  readonly #idempotency: IdempotencyStore;

  constructor(queue: QueueOpener, lanes: RunLanes, idempotency: IdempotencyStore) {
    this.#queue = queue;
    this.#lanes = lanes;
    this.#idempotency = idempotency;
  }

  /**
   * Enqueues a run. When this returns, Redis holds it. Enqueueing the same run again changes nothing.
   *
   * @throws QueueUnavailableError when nothing was sent; any other error leaves open whether the run exists
   */
  async accept(automation: TriggeredAutomation, run: NewRun): Promise<void> {
    const queue = await this.#queue.open();
    const backend = queue.getBackend();
    const { id: automationId, slug, hasLane } = automation;
    const { id: runId, payload, requestId, traceparent, idempotency } = run;
    const data: RunJobData = {
      automationId,
      payload,
      requestId,
      ...(traceparent !== undefined && { traceparent }),
      ...(idempotency && { idempotency: idempotency.keyHash }),
      ...(hasLane && { inLane: true }),
    };
    const options: JobsOptions = {
      jobId: runId,
      attempts: automation.attempts,
      backoff: { type: BACKOFF_TYPE },
      // The reason of a failure is a RunOutcome; a stack trace of our own code would explain nothing.
      stackTraceLimit: 0,
      ...(hasLane && { delay: PARKED_MS }),
    };
    const job = new Job(queue, slug, data, options, runId).asJSON();
    if (!hasLane && !idempotency) {
      await backend.addJob(job, runId);
      return;
    }
    const owner = { automationId, slug };
    const transaction = (await backend.client).multi();
    if (hasLane) this.#lanes.join(transaction, owner, runId);
    if (idempotency) this.#idempotency.confirm(transaction, idempotency, runId);
    await backend.addJobToTransaction(transaction, job, runId);
    const replies = (await transaction.exec()) ?? [];
    const failure = replies.find(([error]) => error)?.[0];
    if (failure) throw failure;
    // The run is accepted; if this fails, it starts when a worker tidies up.
    if (hasLane) await this.#lanes.release(owner).catch(() => undefined);
  }

  /** How many runs wait to be executed, those between two attempts included. */
  async countQueued(): Promise<number> {
    const queue = await this.#queue.open();
    return queue.getJobCountByTypes('waiting', 'prioritized', 'delayed');
  }

  async get(runId: string): Promise<Run | undefined> {
    // Any other id could name one of BullMQ's own keys, such as the queue's `meta`.
    if (!RUN_ID.test(runId)) return undefined;
    const queue = await this.#queue.open();
    // The state comes first: a run that ends in between is then seen with how it ended.
    const state = await queue.getJobState(runId);
    const job = await queue.getJob(runId);
    return job && toRun(job, statusOf(job, state));
  }

  /** The newest runs that match, newest first. */
  async list(filter: RunFilter): Promise<Run[]> {
    const queue = await this.#queue.open();
    const found = new Map<string, Run>();
    for (const type of LISTED_TYPES) {
      for (const run of await listType(queue, type, filter)) found.set(run.id, run);
    }
    // Run ids begin with their time, so that their order is the order of acceptance.
    const newestFirst = [...found.values()].sort((left, right) => (left.id < right.id ? 1 : -1));
    return newestFirst.slice(0, filter.limit);
  }
}

/** In the order in which a run passes through them, so that one that moves on meanwhile is seen twice and not missed. */
const LISTED_TYPES: JobType[] = ['delayed', 'wait', 'prioritized', 'active', 'completed', 'failed'];

/** The latest runs in one of BullMQ's states that match. */
async function listType(queue: BullQueue, type: JobType, filter: RunFilter): Promise<Run[]> {
  const runs: Run[] = [];
  for (let start = 0; start < LIST_SCAN_LIMIT && runs.length < filter.limit; start += LIST_PAGE) {
    const jobs = await queue.getJobs([type], start, start + LIST_PAGE - 1, false);
    runs.push(...jobs.map((job) => toRun(job, statusOf(job, type))).filter((run) => matches(run, filter)));
    if (jobs.length < LIST_PAGE) break;
  }
  return runs;
}

function matches(run: Run, { automation, status }: RunFilter): boolean {
  return (
    (automation === undefined || run.automation === automation) &&
    (status === undefined || run.status === status)
  );
}

/** @param state BullMQ's, read before the job */
function statusOf(job: RunJob, state: string): RunStatus {
  if (job.finishedOn !== undefined) return outcomeOf(job)?.status ?? 'failed';
  if (state === 'active') return 'running';
  return job.attemptsMade > 0 ? 'retrying' : 'queued';
}

/** How the job's latest attempt ended. BullMQ keeps a success as the return value and anything else as the reason. */
function outcomeOf(job: RunJob): RunOutcome | undefined {
  if (job.returnvalue) return job.returnvalue;
  if (!job.failedReason) return undefined;
  try {
    return JSON.parse(job.failedReason) as RunOutcome;
  } catch {
    // Not written by a worker of orc, but by BullMQ itself, which fails a job only when its workers die.
    return { status: 'failed', reason: 'worker_lost', message: job.failedReason };
  }
}

function toRun(job: RunJob, status: RunStatus): Run {
  const outcome = outcomeOf(job);
  return {
    id: job.id ?? '',
    automation: job.name,
    status,
    acceptedAt: new Date(job.timestamp),
    attempt: job.attemptsStarted,
    maxAttempts: job.opts.attempts ?? 1,
    requestId: job.data.requestId,
    payloadBytes: Buffer.byteLength(job.data.payload),
    ...(job.processedOn !== undefined && { startedAt: new Date(job.processedOn) }),
    ...(job.finishedOn !== undefined && isTerminal(status) && { endedAt: new Date(job.finishedOn) }),
    ...(job.processedBy !== undefined && { worker: job.processedBy }),
    ...(outcome !== undefined && status !== 'running' && { outcome }),
  };
}

/** A job as the attempt that a worker is about to make. */
export function toRunAttempt(job: RunJob): RunAttempt {
  const { automationId, payload, requestId, traceparent } = job.data;
  return {
    id: job.id ?? '',
    automation: job.name,
    automationId,
    attempt: job.attemptsStarted,
    acceptedAt: new Date(job.timestamp),
    requestId,
    payload: Buffer.from(payload),
    workersLost: job.stalledCounter,
    ...(traceparent !== undefined && { traceparent }),
  };
}
