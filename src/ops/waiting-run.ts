import type { Run } from '../core/run.ts';
import type { Store } from '../store/store.ts';

/** What a run waits for besides its turn, and the command that lets it start. */
export interface Obstacle {
  /** The end of a sentence: `no worker is alive` */
  text: string;
  cure: string;
}

/** Why a run does not start; undefined unless it waits, and when it only waits for its turn. */
export async function obstacleOf(store: Store, run: Run): Promise<Obstacle | undefined> {
  const { id, automation: slug, status } = run;
  if (status !== 'queued' && status !== 'retrying') return undefined;
  const [{ workersAlive, workersDraining }, automation] = await Promise.all([
    store.workers.alive(),
    store.automations.get(slug),
  ]);
  if (workersAlive === 0) {
    const text = workersDraining.length === 0 ? 'no worker is alive' : 'no worker takes runs';
    return { text, cure: 'orc worker' };
  }
  if (automation?.enabled === false) {
    return {
      text: `${slug} is disabled; a worker that takes the run cancels it`,
      cure: `orc runs cancel ${id}`,
    };
  }
  if (automation?.pausedAt !== undefined) {
    return { text: `held by pause of ${slug}`, cure: `orc automations resume ${slug}` };
  }
  return describeHold(store, run);
}

/** `no worker is alive; the cure: orc worker` */
export function describeObstacle({ text, cure }: Obstacle): string {
  return `${text}; the cure: ${cure}`;
}

/** Which runs have the places that a run waits for. Undefined when the limit of its automation does not hold it. */
export async function describeHold(
  { automations, lanes }: Store,
  { id, automation: slug }: Run,
): Promise<Obstacle | undefined> {
  const automation = await automations.get(slug);
  if (automation?.concurrency === undefined) return undefined;
  const [first, ...others] = await lanes.holders(automation.id);
  // A run with a place waits for a worker.
  if (first === undefined || [first, ...others].includes(id)) return undefined;
  const more = others.length > 0 ? ` and ${others.length} more` : '';
  return {
    text: `held by --concurrency ${automation.concurrency} behind ${first}${more}`,
    cure: `orc runs cancel ${first}, or orc automations set ${slug} --concurrency ${automation.concurrency + 1}`,
  };
}
