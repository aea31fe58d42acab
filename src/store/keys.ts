/** Every Redis key of orc. All have the same hash tag and share one slot of a Redis Cluster. */
export interface Keys {
  /** BullMQ's prefix: its keys are `{orc}:runs:…`. */
  queuePrefix: string;
  /** Hash of one automation. An invalid slug leads to a key that never exists. */
  automation(slug: string): string;
  /** Sorted set of all slugs, all with score 0: in alphabetical order. */
  automations: string;
  /** Sorted set of the slugs of deleted automations, all with score 0, whose runs may still be kept. */
  formerAutomations: string;
  /** Hash of when a run of an automation last succeeded: slug to milliseconds since the epoch. */
  lastSuccess: string;
  /** Hash of an automation's rejected requests: error identifier to count, and with `:at` to the last time. */
  rejections(slug: string): string;
  /** Sorted set of the runs of an automation, or of all, that have not ended, all with score 0: ids come in order of acceptance. */
  openRuns(slug?: string): string;
  /** The same for runs that have ended and are kept. */
  endedRuns(slug?: string): string;
  /** Sorted set in which the version before notes the automations whose runs it accepts, by when, in milliseconds since the epoch. */
  latestRuns: string;
  /** Held by the worker whose turn it is to remove old runs; expires with the turn. */
  retentionTurn: string;
  /** Number of runs an automation accepted in the current window of its rate limit; expires with the window. */
  rateWindow(automationId: string): string;
  /** Hash of the run that an idempotency key stands for; expires with the key's window. */
  idempotency(automationId: string, keyHash: string): string;
  /** Hash of the automations that have a lane: id to slug. */
  lanes: string;
  /** Sorted set of the runs that wait in an automation's lane, all with score 0: ids come in order of acceptance. */
  lane(automationId: string): string;
  /** Set of the runs that have one of the lane's places. */
  laneRunning(automationId: string): string;
  /** Stream of the output of a run. */
  runLog(runId: string): string;
  /** Temporary copy of a run's log that replaces it. */
  packedLog: string;
  /** Sorted set of workers by their last heartbeat, in seconds since the epoch. */
  workers: string;
  /** Hash of each worker's number of slots. */
  workerSlots: string;
  /** Written to check that Redis accepts writes. */
  writeProbe: string;
}

/** @param prefix REDIS_PREFIX */
export function createKeys(prefix: string): Keys {
  const root = `{${prefix}}`;
  return {
    queuePrefix: root,
    automation: (slug) => `${root}:automation:${slug}`,
    automations: `${root}:automations`,
    formerAutomations: `${root}:former-automations`,
    lastSuccess: `${root}:last-success`,
    rejections: (slug) => `${root}:rejections:${slug}`,
    openRuns: (slug) => (slug === undefined ? `${root}:open-runs` : `${root}:open-runs:${slug}`),
    endedRuns: (slug) => (slug === undefined ? `${root}:ended-runs` : `${root}:ended-runs:${slug}`),
    latestRuns: `${root}:latest-runs`,
    retentionTurn: `${root}:retention-turn`,
    rateWindow: (automationId) => `${root}:rate:${automationId}`,
    idempotency: (automationId, keyHash) => `${root}:idempotency:${automationId}:${keyHash}`,
    lanes: `${root}:lanes`,
    lane: (automationId) => `${root}:lane:${automationId}`,
    laneRunning: (automationId) => `${root}:lane-running:${automationId}`,
    runLog: (runId) => `${root}:log:${runId}`,
    packedLog: `${root}:packed-log`,
    workers: `${root}:workers`,
    workerSlots: `${root}:worker-slots`,
    writeProbe: `${root}:write-probe`,
  };
}
