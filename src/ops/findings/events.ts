import { formatAge } from '../../core/age.ts';
import { formatDuration } from '../../core/durations.ts';
import { maskReceiverUrl } from '../../core/masked-url.ts';
import type { EventReceiver } from '../../core/run-event.ts';
import type { EventQueueState } from '../../store/event-outbox.ts';
import type { Store } from '../../store/store.ts';
import { type Finding, ok, warning } from './finding.ts';

/** Workers send events at once; one that may be sent for this long, in milliseconds, is not sent. */
const UNSENT_MS = 60_000;

/** How long it is a warning that events were dropped, in milliseconds. */
const DROPPED_LATELY_MS = 86_400_000;

/** The option that sets each URL. */
const OPTIONS: Readonly<Record<EventReceiver, string>> = { onEnd: '--on-end', onFailure: '--on-failure' };

/** Whether events reach the URLs of automations. */
export async function checkEvents(store: Store): Promise<Finding[]> {
  const queues = await store.events.queues();
  return [await checkReceivers(store, queues), await checkDrops(store)];
}

async function checkReceivers(store: Store, queues: readonly EventQueueState[]): Promise<Finding> {
  const failing = queues.flatMap((queue) => (queue.failing ? [{ ...queue, failing: queue.failing }] : []));
  const [first, ...others] = failing.sort((a, b) => Number(a.failing.since) - Number(b.failing.since));
  if (!first) return checkUnsent(queues);
  const { slug, receiver, waiting, failing: how } = first;
  const option = OPTIONS[receiver];
  const url = (await store.automations.get(slug))?.[receiver] ?? '';
  const more = others.length === 0 ? '' : `; so have ${others.length} other URLs: orc status`;
  return warning(
    'events',
    `${option} ${maskReceiverUrl(url)} of ${slug} has failed for ${formatDuration(Math.max(0, Date.now() - how.since.getTime()))}: ${how.lastError} ${eventsWait(waiting)}${more}`,
    `mend the receiver, which gets its events within 24 h, or: orc automations set ${slug} ${option} URL`,
  );
}

function checkUnsent(queues: readonly EventQueueState[]): Finding {
  const waiting = queues.reduce((sum, queue) => sum + queue.waiting, 0);
  const [longest] = [...queues].sort((a, b) => Number(a.dueAt) - Number(b.dueAt));
  const lateMs = longest ? Date.now() - longest.dueAt.getTime() : 0;
  if (!longest || lateMs < UNSENT_MS) return ok('events', `${eventsWait(waiting)}, all receivers answer`);
  const message = `${eventsWait(waiting)}, those of ${longest.slug} for ${formatDuration(lateMs)}, and no worker sends them`;
  return warning('events', message, 'start another worker: orc worker');
}

async function checkDrops(store: Store): Promise<Finding> {
  const drops = [...(await store.events.drops())];
  const total = drops.reduce((sum, [, { count }]) => sum + count, 0);
  const latest = drops.flatMap(([slug, each]) => each.latest.map((drop) => ({ slug, ...drop })));
  const [last] = latest.sort((a, b) => Number(b.at) - Number(a.at));
  const message = `${total} so far`;
  if (!last || Date.now() - last.at.getTime() > DROPPED_LATELY_MS) return ok('dropped events', message);
  const { slug, receiver, at, lastError } = last;
  return warning(
    'dropped events',
    `${message}, the last for ${OPTIONS[receiver]} of ${slug} ${formatAge(at)}: ${lastError}`,
    `check the receiver: orc automations show ${slug}; then its runs: orc runs list --automation ${slug}`,
  );
}

function eventsWait(count: number): string {
  return count === 1 ? '1 event waits' : `${count} events wait`;
}
