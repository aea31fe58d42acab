import type { Store } from '../../store/store.ts';
import { checkEvents } from './events.ts';
import { type Finding, ok } from './finding.ts';
import { checkKept } from './kept.ts';
import { checkRedis, checkRights } from './redis.ts';
import { checkRuns, type RunLimits } from './runs.ts';

/** The settings of the other processes that the findings are held against. */
export interface ExamineLimits extends RunLimits {
  /** KEEP_BYTES, if it is set. */
  keepBytes?: number | undefined;
}

/** What `orc doctor` and the console find in Redis: its rights and settings, the workers, the runs and what comes of them. */
export async function examineStore(store: Store, limits: ExamineLimits): Promise<Finding[]> {
  const reached = [ok('redis', 'reachable'), await checkRights(store)];
  // The other checks need the missing rights.
  if (reached.some(({ state }) => state === 'problem')) return reached;
  const findings = [...reached, ...(await checkRedis(store))];
  // BullMQ writes even when it is only asked.
  const takesWrites = findings.some(({ check, state }) => check === 'redis writes' && state === 'ok');
  if (!takesWrites) return findings;
  return [
    ...findings,
    ...(await checkRuns(store, limits)),
    ...(await checkEvents(store)),
    await checkKept(store, limits.keepBytes),
  ];
}
