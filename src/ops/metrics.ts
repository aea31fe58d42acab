import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { ERRORS, type ErrorId } from '../core/errors.ts';
import type { Run } from '../core/run.ts';

/**
 * Automations that are counted by name. Only who holds a key can have a name counted, but an operator may create any
 * number of automations, and delete them; what exceeds this is counted together.
 */
const MAX_AUTOMATIONS = 500;
/** No slug has parentheses. */
const OTHER_AUTOMATIONS = '(other)';

/** Of prom-client's own metrics, those whose names Prometheus' rules reserve for counters, which they are not. */
const MISNAMED_DEFAULTS = ['handles', 'requests', 'resources'].map((kind) => `nodejs_active_${kind}_total`);

/** In seconds. */
const ACCEPT_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5];
const RUN_BUCKETS = [0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400];

/** How often the event loop's lag is measured, in milliseconds. */
const LAG_RESOLUTION_MS = 20;

/** What one process counts, and how it is. Counting is an addition in memory; everything else is done when it is read. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #registers = [this.#registry];
  readonly #lag: IntervalHistogram = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  readonly #automations = new Set<string>();
  readonly #accepted = new Counter({
    name: 'orc_runs_accepted_total',
    help: 'Runs that this process has accepted.',
    labelNames: ['automation'],
    registers: this.#registers,
  });
  readonly #replayed = new Counter({
    name: 'orc_requests_replayed_total',
    help: 'Requests answered with the run of an earlier one that had the same idempotency key.',
    registers: this.#registers,
  });
  readonly #rejected = new Counter({
    name: 'orc_requests_rejected_total',
    help: 'Requests answered with an error, throttled ones and health checks included, by its identifier.',
    labelNames: ['error'],
    registers: this.#registers,
  });
  readonly #acceptDuration = new Histogram({
    name: 'orc_accept_duration_seconds',
    help: 'Time from a request that starts a run to its answer.',
    buckets: ACCEPT_BUCKETS,
    registers: this.#registers,
  });
  readonly #ended = new Counter({
    name: 'orc_runs_ended_total',
    // A run that is cancelled while it waits ends in no worker, but in the process of the command line.
    help: 'Runs that have ended for good in this process, by how they ended.',
    labelNames: ['automation', 'status'],
    registers: this.#registers,
  });
  readonly #runDuration = new Histogram({
    name: 'orc_run_duration_seconds',
    help: 'Time that the last attempt at a run took.',
    labelNames: ['automation'],
    buckets: RUN_BUCKETS,
    registers: this.#registers,
  });

  constructor() {
    for (const error of Object.keys(ERRORS)) this.#rejected.inc({ error }, 0);
    const lag = this.#lag;
    new Gauge({
      name: 'orc_event_loop_lag_seconds',
      help: 'Longest time since the last scrape for which this process did nothing else.',
      registers: this.#registers,
      collect() {
        // What is measured is the time between two looks, which is never less than the pause between them.
        this.set(Math.max(0, lag.max / 1e9 - LAG_RESOLUTION_MS / 1000));
        lag.reset();
      },
    });
    collectDefaultMetrics({ register: this.#registry });
    for (const name of MISNAMED_DEFAULTS) this.#registry.removeSingleMetric(name);
    this.#lag.enable();
  }

  /** @param seconds from the request to its answer */
  runAccepted(automation: string, seconds: number): void {
    this.#accepted.inc({ automation: this.#label(automation) });
    this.#acceptDuration.observe(seconds);
  }

  requestReplayed(): void {
    this.#replayed.inc();
  }

  requestRejected(error: ErrorId): void {
    this.#rejected.inc({ error });
  }

  /** @param run one that has ended for good */
  runEnded({ automation, status, startedAt, endedAt }: Run): void {
    const label = this.#label(automation);
    this.#ended.inc({ automation: label, status });
    const durationMs = startedAt && endedAt && endedAt.getTime() - startedAt.getTime();
    if (durationMs !== undefined) this.#runDuration.observe({ automation: label }, durationMs / 1000);
  }

  /** In Prometheus' text format. */
  read(): Promise<string> {
    return this.#registry.metrics();
  }

  close(): void {
    this.#lag.disable();
  }

  #label(automation: string): string {
    if (this.#automations.has(automation)) return automation;
    if (this.#automations.size >= MAX_AUTOMATIONS) return OTHER_AUTOMATIONS;
    this.#automations.add(automation);
    return automation;
  }
}
