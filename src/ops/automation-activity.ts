import type { Automation } from '../core/automation.ts';
import type { Run } from '../core/run.ts';
import type { Store } from '../store/store.ts';

/** What `status` means by lately, in milliseconds. */
const LATELY_MS = 3_600_000;

/** What became of an automation's runs, and what is asked of it. */
export interface AutomationActivity {
  slug: string;
  /** `held`: runs wait for a place of its concurrency limit. */
  state: 'enabled' | 'disabled' | 'paused' | 'held';
  pausedAt?: Date | undefined;
  /** Runs that have not ended. */
  open: number;
  /** In the last hour. */
  failedLately: number;
  acceptedLately: number;
  rejectedLately: number;
  lastSuccess?: Date | undefined;
}

/** All automations: those that fail most come first, then those with the most open runs, then the busiest. */
export async function readActivity(store: Store): Promise<AutomationActivity[]> {
  const { index, lanes, rejections } = store;
  const automations = await store.automations.list();
  const slugs = automations.map(({ slug }) => slug);
  const since = new Date(Date.now() - LATELY_MS);
  const [successes, parked, open, failed, accepted, rejected] = await Promise.all([
    index.lastSuccesses(),
    lanes.parked(),
    index.countOpen(slugs),
    index.countFailed(slugs, since),
    index.countAccepted(slugs, since),
    rejections.countLately(slugs),
  ]);
  const held = new Set(parked.flatMap(({ slug, count }) => (count > 0 ? [slug] : [])));
  const activities = automations.map((automation, position) => {
    const { slug, pausedAt } = automation;
    return {
      slug,
      state: stateOf(automation, held.has(slug)),
      pausedAt,
      open: open[position] ?? 0,
      failedLately: failed[position] ?? 0,
      acceptedLately: accepted[position] ?? 0,
      rejectedLately: rejected[position] ?? 0,
      lastSuccess: successes.get(slug),
    };
  });
  return activities.sort(
    (a, b) => b.failedLately - a.failedLately || b.open - a.open || demandOf(b) - demandOf(a),
  );
}

function stateOf({ enabled, pausedAt }: Automation, isHeld: boolean): AutomationActivity['state'] {
  if (!enabled) return 'disabled';
  if (pausedAt) return 'paused';
  return isHeld ? 'held' : 'enabled';
}

/** Requests in the last hour. */
export function demandOf({ acceptedLately, rejectedLately }: AutomationActivity): number {
  return acceptedLately + rejectedLately;
}

/** The newest run of each of these automations, in the same order. */
export async function lastRuns(
  { index, runs }: Store,
  activities: readonly AutomationActivity[],
): Promise<(Run | undefined)[]> {
  return Promise.all(
    activities.map(async ({ slug }) => {
      const runId = await index.newest(slug);
      return runId === undefined ? undefined : runs.get(runId);
    }),
  );
}
