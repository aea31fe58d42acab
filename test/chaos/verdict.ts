import { isTerminal, type Run } from '../../src/core/run.ts';
import { eventIdOf } from '../../src/core/run-event.ts';
import {
  type AttemptRecord,
  type ChaosAutomation,
  type FinalRuns,
  type History,
  type Incident,
  type Mark,
  type Operation,
  promisedRun,
  type SentRequest,
} from './history.ts';

/** Two acceptances closer than this have no order that a caller could know, in milliseconds. */
const ORDER_MS = 5;

/** What was begun before a pause may reach its receiver this much later, in milliseconds. */
const UNDER_WAY_MS = 1500;

/** An attempt that a worker had ended longer ago than this when it died was safely recorded, in milliseconds. */
const RECORDED_MS = 5000;

export interface Evidence {
  history: History;
  automations: ReadonlyMap<string, ChaosAutomation>;
  /** All runs in Redis at the end, however they came there. */
  runs: FinalRuns;
  /** What commands noted, in order. */
  commandMarks: readonly Mark[];
}

export type DuplicateCause = 'worker killed' | 'worker frozen' | 'lock lost';

export interface Verdict {
  violations: Incident[];
  /** Executions that repeated one which a dead worker had begun. */
  duplicates: Record<DuplicateCause, number>;
  executions: number;
  /** Runs of requests whose senders do not know. */
  uncertainRuns: number;
  /** Runs that were lost with what a restore has undone. */
  lostByRestore: number;
  /** Runs that ended because their worker died, and how many of them had never been executed. */
  givenUp: { runs: number; neverExecuted: number };
}

/** Holds everything that was seen against what orc promises. */
export function judge(evidence: Evidence): Verdict {
  const { history, runs, commandMarks } = evidence;
  const violations: Incident[] = [...history.incidents];
  const marks = [...history.deliveries, ...commandMarks];
  const executions = executionsByRun(marks);
  const isUndone = (runId: string) => history.isUndone(runId, runs.get(runId)?.endedAt?.getTime());
  violations.push(
    ...judgeAnswers(history, runs),
    ...judgePromises(history, runs),
    ...judgeRuns(evidence, executions, isUndone),
    ...judgePayloads(evidence),
    ...judgeEvents(evidence, isUndone),
    ...judgePauses(history),
  );
  const duplicates: Verdict['duplicates'] = { 'worker killed': 0, 'worker frozen': 0, 'lock lost': 0 };
  const lasting = new Map([...executions].filter(([runId]) => !isUndone(runId)));
  violations.push(...judgeDuplicates(evidence, lasting, duplicates));
  for (const { slug, isExclusive } of evidence.automations.values()) {
    if (!isExclusive) continue;
    const own = marks.filter((mark) => mark.slug === slug && lasting.has(mark.runId));
    violations.push(...judgeOverlaps(own), ...judgeOrder(history, own));
  }
  const givenUp = [...runs.values()].filter(({ outcome }) => outcome?.reason === 'worker_lost');
  return {
    violations,
    duplicates,
    lostByRestore: history.operations
      .flatMap(promisesOf)
      .filter(([runId, requests]) => !runs.has(runId) && isTakenAway(history, requests)).length,
    givenUp: {
      runs: givenUp.length,
      neverExecuted: givenUp.filter(({ id }) => !executions.has(id)).length,
    },
    executions: [...executions.values()].reduce((sum, { size }) => sum + size, 0),
    uncertainRuns: [...runs.values()].filter(({ id, requestId }) => {
      const operation = history.operationOfRequest.get(requestId);
      return operation && promisedRun(operation) !== id;
    }).length,
  };
}

function executionsByRun(marks: readonly Mark[]): Map<string, Set<string>> {
  const executions = new Map<string, Set<string>>();
  for (const { runId, execution } of marks) {
    const known = executions.get(runId);
    if (known) known.add(execution);
    else executions.set(runId, new Set([execution]));
  }
  return executions;
}

/** Each answer by itself, and all answers to one idempotency key. */
function judgeAnswers(history: History, runs: FinalRuns): Incident[] {
  const violations: Incident[] = [];
  for (const operation of history.operations) {
    const { id, requests } = operation;
    for (const { answer } of requests) {
      if (answer?.kind !== 'unexpected') continue;
      const message = `operation ${id} was answered ${answer.statusCode} ${answer.body}`;
      violations.push({ kind: 'unexpected answer', message });
    }
    const promised = promisesOf(operation)
      .filter(([runId, answered]) => runs.has(runId) || !isTakenAway(history, answered))
      .map(([runId]) => runId);
    const [runId = ''] = promised;
    if (promised.length < 2) continue;
    const message = `operation ${id} was promised ${promised.join(' and ')}`;
    violations.push({ kind: 'one key, several runs', message, runId });
  }
  return violations;
}

/** The runs that an operation was promised, with the requests that were answered so. */
function promisesOf({ requests }: Operation): [runId: string, requests: SentRequest[]][] {
  const promises = new Map<string, SentRequest[]>();
  for (const request of requests) {
    if (request.answer?.kind !== 'accepted') continue;
    const { runId } = request.answer;
    promises.set(runId, [...(promises.get(runId) ?? []), request]);
  }
  return [...promises];
}

/** Whether all of these answers came after a backup was taken that was restored later. */
function isTakenAway({ restores }: History, requests: readonly SentRequest[]): boolean {
  return restores.some(({ takenAt, restoredAt }) =>
    requests.every(({ sentAt, answeredAt = 0 }) => answeredAt >= takenAt && sentAt < restoredAt),
  );
}

/** Every 202 has its run, and that has ended. */
function judgePromises(history: History, runs: FinalRuns): Incident[] {
  const violations: Incident[] = [];
  for (const operation of history.operations) {
    for (const [runId, requests] of promisesOf(operation)) {
      if (runs.has(runId) || isTakenAway(history, requests)) continue;
      violations.push({ kind: 'lost', message: `${operation.slug}: answered 202, and gone`, runId });
    }
  }
  for (const { id, status, automation } of runs.values()) {
    if (isTerminal(status)) continue;
    violations.push({ kind: 'stuck', message: `${automation}: still ${status}`, runId: id });
  }
  return violations;
}

/** Every run and every execution goes back to a request, and one request, or one key, has one run. */
function judgeRuns(
  { history, automations, runs }: Evidence,
  executions: Map<string, Set<string>>,
  isUndone: (runId: string) => boolean,
): Incident[] {
  const violations: Incident[] = [];
  const runOf = new Map<Operation, string>();
  for (const run of runs.values()) {
    const runId = run.id;
    const operation = history.operationOfRequest.get(run.requestId);
    if (!operation) {
      violations.push({ kind: 'unknown run', message: 'no request asked for it', runId });
      continue;
    }
    const other = runOf.get(operation) ?? promisedRun(operation);
    if (other !== undefined && other !== runId && !isUndone(other)) {
      violations.push({
        kind: 'enqueued twice',
        message: `operation ${operation.id} also has ${other}`,
        runId,
      });
    }
    runOf.set(operation, runId);
    violations.push(
      ...judgeRequest(run, operation),
      ...judgeOutcome(run, automations.get(operation.slug), executions.get(runId)?.size ?? 0),
    );
  }
  for (const runId of executions.keys()) {
    if (runs.has(runId) || isUndone(runId)) continue;
    violations.push({ kind: 'unknown execution', message: 'there is no such run', runId });
  }
  return violations;
}

/** What was refused, or never sent, has no run. */
function judgeRequest({ id: runId, requestId }: Run, { requests }: Operation): Incident[] {
  const kind = requests.find(({ id }) => id === requestId)?.answer?.kind;
  if (kind !== 'refused' && kind !== 'unsent') return [];
  const message = `the request ${requestId} was ${kind}, and has a run`;
  return [{ kind: 'refused, yet enqueued', message, runId }];
}

function judgeOutcome(
  { id: runId, status, outcome }: Run,
  automation: ChaosAutomation | undefined,
  executions: number,
): Incident[] {
  if (status === 'succeeded') {
    if (executions > 0) return [];
    return [{ kind: 'never executed', message: 'it succeeded, and was never executed', runId }];
  }
  if (!isTerminal(status)) return [];
  if (outcome && automation?.failures?.includes(outcome.reason)) return [];
  // A run that must not be repeated ends so, and one whose workers died too often.
  if (automation?.isSkipping && outcome?.reason === 'automation_busy') {
    if (executions === 0) return [];
    return [{ kind: 'skipped, yet executed', message: `${executions} executions`, runId }];
  }
  const isGivenUp = status === 'failed' && outcome?.reason === 'worker_lost';
  const isAllowed = automation?.onWorkerLoss === 'fail' || /^\d+ workers died/.test(outcome?.message ?? '');
  if (isGivenUp && isAllowed) return [];
  const message = `what it does never fails, but it ended as ${status}: ${outcome?.message}`;
  return [{ kind: 'wrong outcome', message, runId }];
}

/** While an automation is paused, none of its runs begins. */
function judgePauses({ deliveries, pauses }: History): Incident[] {
  const violations: Incident[] = [];
  for (const { runId, slug, sign, at = 0 } of deliveries) {
    const pause = pauses.find(
      (each) => each.slug === slug && at > each.pausedAt + UNDER_WAY_MS && at < each.resumedAt,
    );
    if (sign !== 'start' || !pause) continue;
    const message = `${slug}: it began ${at - pause.pausedAt} ms after the pause`;
    violations.push({ kind: 'started while paused', message, runId });
  }
  return violations;
}

/** What is delivered is what was sent. */
function judgePayloads({ history, runs }: Evidence): Incident[] {
  const violations: Incident[] = [];
  for (const { runId, payload } of history.deliveries) {
    const operation = history.operationOfRequest.get(runs.get(runId)?.requestId ?? '');
    if (payload === undefined || !operation || operation.payload === payload) continue;
    violations.push({ kind: 'wrong payload', message: `delivered ${payload}`, runId });
  }
  return violations;
}

/** The runs that have ended, and whose event has not arrived. */
export function runsWithoutEvent({ history, automations, runs }: Omit<Evidence, 'commandMarks'>): Run[] {
  return [...runs.values()].filter(({ id, automation, status }) => {
    if (!automations.get(automation)?.hasEvents || !isTerminal(status)) return false;
    return !history.events.get(id)?.has(eventIdOf(id, status));
  });
}

/** Every run that has ended has its event, with one id, and no other run has one. */
function judgeEvents(evidence: Evidence, isUndone: (runId: string) => boolean): Incident[] {
  const { history, runs } = evidence;
  const violations = runsWithoutEvent(evidence).map(
    ({ id: runId, status }): Incident => ({ kind: 'event lost', message: `it has ${status}`, runId }),
  );
  for (const [runId, ids] of history.events) {
    // Its end was undone: it may have ended twice, in two ways, or be gone.
    if (isUndone(runId)) continue;
    const status = runs.get(runId)?.status;
    const expected = status && isTerminal(status) ? eventIdOf(runId, status) : undefined;
    const wrong = [...ids].filter((id) => id !== expected);
    if (wrong.length === 0) continue;
    const message = `${wrong.join(', ')} arrived, and it is ${status ?? 'gone'}`;
    violations.push({ kind: 'wrong event', message, runId });
  }
  return violations;
}

/** A run is executed again only when the worker that executed it died, and never when its automation forbids it. */
function judgeDuplicates(
  { history, automations, runs }: Evidence,
  executions: Map<string, Set<string>>,
  duplicates: Verdict['duplicates'],
): Incident[] {
  const violations: Incident[] = [];
  for (const [runId, { size }] of executions) {
    const automation = automations.get(runs.get(runId)?.automation ?? '');
    const surplus = size - (automation?.executions ?? size);
    if (surplus <= 0) continue;
    const message = `${automation?.slug}: ${size} executions`;
    if (automation?.onWorkerLoss === 'fail') {
      violations.push({ kind: 'repeated in spite of --on-worker-loss fail', message, runId });
    }
    const causes = causesOfRepetition(history, runId, size);
    for (const cause of causes.slice(0, surplus)) duplicates[cause] += 1;
    if (causes.length < surplus) violations.push({ kind: 'repeated without a cause', message, runId });
  }
  return violations;
}

/** Why a run was taken again, once for each attempt whose worker did not live to record it. */
function causesOfRepetition(history: History, runId: string, executions: number): DuplicateCause[] {
  const records = history.attempts.get(runId) ?? [];
  const causes = records.flatMap((record) => causeOfLoss(history, record) ?? []);
  // A worker that is killed may take what it says about its latest attempt with it.
  const unsaid = Math.max(0, executions - records.length);
  const hasKilled = history.faults.some(({ kind }) => kind === 'worker killed');
  return hasKilled ? [...causes, ...Array<DuplicateCause>(unsaid).fill('worker killed')] : causes;
}

function causeOfLoss({ faults }: History, record: AttemptRecord): DuplicateCause | undefined {
  if (record.isLockLost) return 'lock lost';
  const endedAt = record.endedAt ?? Number.POSITIVE_INFINITY;
  const fault = faults.find(
    ({ kind, parts, startedAt }) =>
      (kind === 'worker killed' || (kind === 'worker frozen' && startedAt >= record.startedAt)) &&
      parts.includes(record.worker) &&
      endedAt >= startedAt - RECORDED_MS,
  );
  return fault?.kind === 'worker killed' || fault?.kind === 'worker frozen' ? fault.kind : undefined;
}

/** No sign of an execution comes after another one of the same automation has begun. */
function judgeOverlaps(marks: readonly Mark[]): Incident[] {
  const violations: Incident[] = [];
  const seen = new Set<string>();
  let latest: Mark | undefined;
  for (const mark of marks) {
    if (mark.sign === 'start') latest = mark;
    const isSame = latest?.runId === mark.runId && latest.execution === mark.execution;
    if (!latest || isSame) continue;
    const pair = `${mark.runId} ${mark.execution} during ${latest.runId} ${latest.execution}`;
    if (seen.has(pair)) continue;
    seen.add(pair);
    violations.push({ kind: 'two at once', message: `${mark.slug}: ${pair}`, runId: mark.runId });
  }
  return violations;
}

/** Of two runs of which one was accepted before the other was asked for, that one begins first. */
function judgeOrder({ operations }: History, marks: readonly Mark[]): Incident[] {
  const times = new Map<string, { sentAt: number; acceptedAt: number }>();
  for (const operation of operations) {
    const sentAt = operation.requests[0]?.sentAt ?? 0;
    // Each run by its own answers: an operation has a second, later run when a restore took the first one away.
    for (const [runId, answered] of promisesOf(operation)) {
      const acceptedAt = Math.min(
        ...answered.map(({ answeredAt }) => answeredAt ?? Number.POSITIVE_INFINITY),
      );
      times.set(runId, { sentAt, acceptedAt });
    }
  }
  const begun = [...new Set(marks.map(({ runId }) => runId))];
  const violations: Incident[] = [];
  let earliest = { runId: '', acceptedAt: Number.POSITIVE_INFINITY };
  for (const runId of begun.reverse()) {
    const time = times.get(runId);
    if (!time) continue;
    if (earliest.acceptedAt + ORDER_MS < time.sentAt) {
      const message = `it began before ${earliest.runId}, which was accepted ${time.sentAt - earliest.acceptedAt} ms before it was asked for`;
      violations.push({ kind: 'out of order', message, runId });
    }
    if (time.acceptedAt < earliest.acceptedAt) earliest = { runId, acceptedAt: time.acceptedAt };
  }
  return violations;
}
