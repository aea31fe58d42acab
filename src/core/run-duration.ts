import { formatDuration } from './durations.ts';
import type { Run } from './run.ts';

/** How long a run took, from the first start to the end, or takes until now; undefined while it waits for its first start. */
export function durationOf({ firstStartedAt, endedAt, status }: Run): string | undefined {
  if (!firstStartedAt || status === 'queued') return undefined;
  return formatDuration((endedAt ?? new Date()).getTime() - firstStartedAt.getTime());
}
