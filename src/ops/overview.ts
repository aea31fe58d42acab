import { formatDuration } from '../core/durations.ts';
import { SLOTS_HELD_MS, slotsHeldSince } from '../core/slots.ts';
import type { QueueOverview } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import type { AliveWorkers } from '../store/workers.ts';

/** Automations named as those whose runs hold all slots. */
const MAX_HOLDERS = 3;

/** What waits, what executes, and which workers are alive. */
export interface Overview extends QueueOverview, AliveWorkers {
  /** Since when the same runs have held every slot of every worker; absent when one is free. */
  slotsHeldSince?: Date;
  /** Ids of the running ones whose worker died or lost Redis. */
  abandoned: string[];
}

export async function overviewOf(store: Store): Promise<Overview> {
  const [overview, workers] = await Promise.all([store.runs.overview(), store.workers.alive()]);
  const abandoned = await store.runs.withoutLock(overview.running.map(({ id }) => id));
  // The slots of a worker that drains are given to no run any more.
  const inSlots = overview.running.filter(({ worker = '' }) => !workers.workersDraining.includes(worker));
  const startTimes = inSlots.flatMap(({ startedAt }) => startedAt ?? []);
  const heldSince = slotsHeldSince(startTimes, workers.slots);
  return { ...overview, ...workers, abandoned, ...(heldSince && { slotsHeldSince: heldSince }) };
}

/** How long all slots have been held, and by which runs; undefined unless it is long. */
export function describeHeldSlots({ slots, slotsHeldSince: since, running }: Overview): string | undefined {
  const [longest] = running;
  if (!since || !longest || Date.now() - since.getTime() < SLOTS_HELD_MS) return undefined;
  const holders = new Map<string, number>();
  for (const { automation } of running) holders.set(automation, (holders.get(automation) ?? 0) + 1);
  const most = [...holders].sort(([, left], [, right]) => right - left).slice(0, MAX_HOLDERS);
  const names = most.map(([automation, runs]) => `${runs} by ${automation}`).join(', ');
  return `all ${slots} have been held for ${ageOf(since)}: ${names}; longest by ${longest.id}`;
}

/** Which runs wait because somebody paused their automation; undefined if none does. */
export function describePaused({ paused, pausedBy }: Overview): string | undefined {
  const [first, ...others] = pausedBy;
  if (first === undefined) return undefined;
  return `${paused} waiting, held by pause of ${first}${others.length > 0 ? ` and ${others.length} more` : ''}`;
}

/** What lets them start. */
export function cureForPaused({ pausedBy: [first = '<slug>'] }: Overview): string {
  return `orc automations resume ${first}`;
}

/** What frees a slot or adds one. */
export function cureForHeldSlots({ running }: Overview): string {
  return `orc runs cancel ${running[0]?.id}, or start another worker: orc worker`;
}

/** Which runs have lost their worker, and what becomes of them; undefined if none has. */
export function describeAbandoned({ abandoned, workersAlive }: Overview): string | undefined {
  const [first] = abandoned;
  if (first === undefined) return undefined;
  const next = workersAlive > 0 ? 'another worker takes over within a minute' : 'start a worker: orc worker';
  return `${abandoned.length}, among them ${first}: the worker died or lost Redis; ${next}`;
}

/** `2 alive, 1 drains` */
export function describeWorkers({ workersAlive, workersDraining }: AliveWorkers): string {
  const draining = workersDraining.length;
  if (draining === 0) return `${workersAlive} alive`;
  return `${workersAlive} alive, ${draining} drain${draining === 1 ? 's' : ''}`;
}

/** Said when no worker is alive. */
export function noneTakesRuns({ workersDraining }: AliveWorkers): string {
  return workersDraining.length === 0 ? 'none is alive' : `none takes runs, ${workersDraining.length} drain`;
}

/** How long ago it was: `1.5 s` */
export function ageOf(time: Date): string {
  return formatDuration(Math.max(0, Date.now() - time.getTime()));
}
