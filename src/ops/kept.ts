import { formatBytes } from '../core/bytes.ts';
import type { KeptUsage } from '../store/kept-bytes.ts';
import type { Store } from '../store/store.ts';

/** Automations named as those that keep most. */
const MAX_NAMED = 3;

/** Of the budget, in which what the oldest runs keep is removed by and by. */
const FULL = 0.95;

/** What the logs, results and artifacts of ended runs take, and which automations take most of it. */
export function describeKept({ bytes, limitBytes, automations }: KeptUsage): string {
  const used = `${formatBytes(bytes)} of at most ${formatBytes(limitBytes)}`;
  const most = automations.slice(0, MAX_NAMED).map((each) => `${each.slug} ${formatBytes(each.bytes)}`);
  return most.length === 0 ? used : `${used}; most by ${most.join(', ')}`;
}

/** Whether the oldest of it is removed before its run is. */
export function isKeptFull({ bytes, limitBytes }: KeptUsage): boolean {
  return bytes >= FULL * limitBytes;
}

/** What to say where a run's log, result or artifacts are missing; undefined if they were not removed. */
export async function explainDropped(store: Store, runId: string): Promise<string | undefined> {
  if (!(await store.kept.wasDropped(runId))) return undefined;
  return 'Its log, result and artifacts were removed to stay within KEEP_BYTES: orc doctor';
}
