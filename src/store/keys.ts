/**
 * Every Redis key of orc. All have the same hash tag and share one slot of a Redis Cluster.
 *
 * @param prefix REDIS_PREFIX
 */
export function createKeys(prefix: string) {
  const root = `{${prefix}}`;
  const runLog = (runId: string) => `${root}:log:${runId}`;
  const result = (runId: string) => `${root}:result:${runId}`;
  const artifacts = (runId: string) => `${root}:artifacts:${runId}`;
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
    /** What the agents of an automation have cost on a day, in USD; expires after it. */
    agentCost: (automationId: string, day: string) => `${root}:agent-cost:${automationId}:${day}`,
    /** Hash of an automation's rejected requests: error identifier to count, and with `:at` to the last time. */
    rejections: (slug: string) => `${root}:rejections:${slug}`,
    /** Sorted set of the runs of an automation, or of all, that have not ended, all with score 0: ids come in order of acceptance. */
    openRuns: (slug?: string) => (slug === undefined ? `${root}:open-runs` : `${root}:open-runs:${slug}`),
    /** The same for runs that have ended and are kept. */
    endedRuns: (slug?: string) => (slug === undefined ? `${root}:ended-runs` : `${root}:ended-runs:${slug}`),
    /** Sorted set of the kept runs of an automation, or of all, that failed or timed out, by when, in milliseconds since the epoch. */
    failedRuns: (slug?: string) =>
      slug === undefined ? `${root}:failed-runs` : `${root}:failed-runs:${slug}`,
    /** Hash of how many runs were accepted and ended in each minute of an hour, which is counted since the epoch. */
    runCounts: (hour: string) => `${root}:run-counts:${hour}`,
    /** Up to which end, in milliseconds since the epoch, the failed runs of the version before are in that set. */
    failedAdopted: `${root}:failed-adopted`,
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
    runLog,
    /** JSON text of the result of a run. */
    result,
    /** Hash of the files that a run left. */
    artifacts,
    /** Hash of the bytes that these take of ended runs: slug to bytes, and their total. */
    keptBytes: `${root}:kept-bytes`,
    /** Everything that is removed with a run, besides what BullMQ has of it. */
    keptWithRun: (runId: string) => [runLog(runId), result(runId), artifacts(runId)],
    /** Temporary copy of a run's log that replaces it. */
    packedLog: `${root}:packed-log`,
    /** Sorted set of the queues with events, `slug:receiver`, by when the next one may be sent, in milliseconds since the epoch. */
    eventQueues: `${root}:event-queues`,
    /** Hash of the workers that send from these queues: a token of each turn. */
    eventTurns: `${root}:event-turns`,
    /** Hash of how long a queue has delivered nothing and why, by queue. */
    eventFailures: `${root}:event-failures`,
    /** Hash of what the events of each queue take, in bytes. */
    eventBytes: `${root}:event-bytes`,
    /** Hash of how many events of each automation were dropped, by slug, and what became of the latest one, by queue. */
    eventDrops: `${root}:event-drops`,
    /** Sorted set of the events for one URL of an automation by when to send them, in milliseconds since the epoch. */
    eventQueue: (slug: string, receiver: string) => `${root}:events:${slug}:${receiver}`,
    /** Hash of what is sent, by event. */
    eventBodies: (slug: string, receiver: string) => `${root}:event-bodies:${slug}:${receiver}`,
    /** Hash of how the tries to send an event went, by event. */
    eventTries: (slug: string, receiver: string) => `${root}:event-tries:${slug}:${receiver}`,
    /** Sorted set of workers by their last heartbeat, in seconds since the epoch. */
    workers: `${root}:workers`,
    /** The same for workers that drain: they take no more runs, and are in no other key of workers. */
    drainingWorkers: `${root}:draining-workers`,
    /** Hash of each worker's number of slots. */
    workerSlots: `${root}:worker-slots`,
    /** Sorted set of the workers that have no git, by their last heartbeat, in seconds since the epoch. */
    workersWithoutGit: `${root}:workers-without-git`,
    /** Hash of the operators of the console: name to JSON of id, role and time. */
    operators: `${root}:operators`,
    /** Name and id of the operator whom a login link logs in; expires with the link. */
    loginLink: (tokenHash: string) => `${root}:login-link:${tokenHash}`,
    /** How often sessions of the console were ended before their time. */
    endedSessions: `${root}:ended-sessions`,
    /** Hash of a session of the console; expires with it. */
    session: (tokenHash: string) => `${root}:session:${tokenHash}`,
    /** Sorted set of the sessions of an operator by when they began, in milliseconds since the epoch. */
    sessionsOf: (operator: string) => `${root}:sessions:${operator}`,
    /** Stream of the changes that people made. */
    audit: `${root}:audit`,
    /** Written to check that Redis accepts writes. */
    writeProbe: `${root}:write-probe`,
  };
}

export type Keys = ReturnType<typeof createKeys>;
