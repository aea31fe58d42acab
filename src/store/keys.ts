/**
 * Every Redis key of orc. All have the same hash tag and share one slot of a Redis Cluster.
 *
 * @param prefix REDIS_PREFIX
 */
export function createKeys(prefix: string) {
  const root = `{${prefix}}`;
  return {
    /** BullMQ's prefix: its keys are `{orc}:runs:…`. */
    queuePrefix: root,
    /** Hash of one automation. An invalid slug leads to a key that never exists. */
    automation: (slug: string) => `${root}:automation:${slug}`,
    /** Sorted set of all slugs, all with score 0: in alphabetical order. */
    automations: `${root}:automations`,
    /** Sorted set of the slugs of deleted automations, all with score 0, whose runs may still be kept. */
    formerAutomations: `${root}:former-automations`,
    /** Hash of when a run of an automation last succeeded: slug to milliseconds since the epoch. */
    lastSuccess: `${root}:last-success`,
    /** Hash of an automation's rejected requests: error identifier to count, and with `:at` to the last time. */
    rejections: (slug: string) => `${root}:rejections:${slug}`,
    /** Sorted set of the runs of an automation, or of all, that have not ended, all with score 0: ids come in order of acceptance. */
    openRuns: (slug?: string) => (slug === undefined ? `${root}:open-runs` : `${root}:open-runs:${slug}`),
    /** The same for runs that have ended and are kept. */
    endedRuns: (slug?: string) => (slug === undefined ? `${root}:ended-runs` : `${root}:ended-runs:${slug}`),
    /** Sorted set in which the version before notes the automations whose runs it accepts, by when, in milliseconds since the epoch. */
    latestRuns: `${root}:latest-runs`,
    /** Held by the worker whose turn it is to remove old runs; expires with the turn. */
    retentionTurn: `${root}:retention-turn`,
    /** Number of runs an automation accepted in the current window of its rate limit; expires with the window. */
    rateWindow: (automationId: string) => `${root}:rate:${automationId}`,
    /** Hash of the run that an idempotency key stands for; expires with the key's window. */
    idempotency: (automationId: string, keyHash: string) => `${root}:idempotency:${automationId}:${keyHash}`,
    /** Hash of the automations that have a lane: id to slug. */
    lanes: `${root}:lanes`,
    /** Sorted set of the runs that wait in an automation's lane, all with score 0: ids come in order of acceptance. */
    lane: (automationId: string) => `${root}:lane:${automationId}`,
    /** Set of the runs that have one of the lane's places. */
    laneRunning: (automationId: string) => `${root}:lane-running:${automationId}`,
    /** Stream of the output of a run. */
    runLog: (runId: string) => `${root}:log:${runId}`,
    /** Temporary copy of a run's log that replaces it. */
    packedLog: `${root}:packed-log`,
    /** Sorted set of workers by their last heartbeat, in seconds since the epoch. */
    workers: `${root}:workers`,
    /** Hash of each worker's number of slots. */
    workerSlots: `${root}:worker-slots`,
    /** Written to check that Redis accepts writes. */
    writeProbe: `${root}:write-probe`,
  };
}

export type Keys = ReturnType<typeof createKeys>;
