import { Gauge, Registry } from 'prom-client';
import { withDeadline } from '../core/deadline.ts';
import { slotsHeldSince } from '../core/slots.ts';
import type { Store } from '../store/store.ts';

/** Redis' time for one scrape, in milliseconds. Prometheus itself waits for ten seconds. */
const DEADLINE_MS = 1000;

/** What every process reports alike: how the queue and the workers are, asked of Redis when somebody wants to know. */
export class QueueMetrics {
  readonly #store: Store;
  readonly #up = new Registry();
  readonly #known = new Registry();
  readonly #redisUp = new Gauge({
    name: 'orc_redis_up',
    help: 'Whether Redis has answered this process in time.',
    registers: [this.#up],
  });
  readonly #workersAlive = this.#gauge('orc_workers_alive', 'Workers that are alive.');
  readonly #slotsHeld = this.#gauge(
    'orc_slots_held_seconds',
    'Time for which the same runs have held every slot of every worker that takes runs, so that no other starts, or 0.',
  );
  readonly #queued = this.#gauge('orc_queued_runs', 'Runs that have not started.');
  readonly #retrying = this.#gauge('orc_retrying_runs', 'Runs between two attempts.');
  readonly #oldestAge = this.#gauge(
    'orc_oldest_queued_run_age_seconds',
    'Time since the run was accepted that has waited longest for its start, or 0.',
  );
  readonly #eventsWaiting = this.#gauge('orc_events_waiting', 'Events that wait to be delivered.');
  readonly #eventsFailing = this.#gauge(
    'orc_event_receivers_failing',
    'URLs of automations to which no event could be delivered when it was last tried.',
  );
  readonly #eventsDropped = this.#gauge(
    'orc_events_dropped',
    'Events of the existing automations that were given up, or found too many waiting.',
  );
  // What BullMQ's own exporter tells, too, under a name that is not for gauges.
  readonly #jobs = new Gauge({
    name: 'orc_queue_jobs',
    help: 'Jobs in each state of BullMQ; those that wait in a lane are delayed.',
    labelNames: ['state'],
    registers: [this.#known],
  });
  #asking: Promise<string> | undefined;

  constructor(store: Store) {
    this.#store = store;
  }

  #gauge(name: string, help: string): Gauge {
    return new Gauge({ name, help, registers: [this.#known] });
  }

  /** In Prometheus' text format. What Redis does not say in time is left out, rather than told from memory. */
  async read(): Promise<string> {
    // One question at a time: a Redis that hangs is not sent more and more of them.
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    const known = await withDeadline(this.#asking, DEADLINE_MS).catch(() => undefined);
    this.#redisUp.set(known === undefined ? 0 : 1);
    return (await this.#up.metrics()) + (known ?? '');
  }

  async #ask(): Promise<string> {
    const { runs, workers, events } = this.#store;
    const [eventQueues, drops] = await Promise.all([events.queues(), events.drops()]);
    this.#eventsWaiting.set(eventQueues.reduce((sum, { waiting }) => sum + waiting, 0));
    this.#eventsFailing.set(eventQueues.filter(({ failing }) => failing).length);
    this.#eventsDropped.set([...drops.values()].reduce((sum, { count }) => sum + count, 0));
    const [{ workersAlive, workersDraining, slots }, { queued, retrying, oldestQueuedAt }, jobCounts] =
      await Promise.all([workers.alive(), runs.depth(), runs.jobCounts()]);
    // The slots of a worker that drains are given to no run any more.
    const startTimes = await runs.startTimes(workersDraining);
    this.#workersAlive.set(workersAlive);
    const heldSince = slotsHeldSince(startTimes, slots);
    this.#slotsHeld.set(heldSince ? Math.max(0, Date.now() - heldSince.getTime()) / 1000 : 0);
    this.#queued.set(queued);
    this.#retrying.set(retrying);
    this.#oldestAge.set(oldestQueuedAt ? Math.max(0, Date.now() - oldestQueuedAt.getTime()) / 1000 : 0);
    for (const [state, count] of Object.entries(jobCounts)) this.#jobs.set({ state }, count);
    return this.#known.metrics();
  }
}
