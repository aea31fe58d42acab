import { QueueOpener } from '../../src/store/queue.ts';
import type { Store } from '../../src/store/store.ts';
import { type History, type Operation, promisedRun } from './history.ts';
import type { Evidence } from './verdict.ts';

/** Faults this long before and after what happened to a run belong to its story, in milliseconds. */
const BEFORE_MS = 5000;
const AFTER_MS = 60_000;

interface Event {
  at: number;
  text: string;
}

/** Everything that is known of one run, in the order in which it happened as far as that can be told. */
export async function storyOf(runId: string, evidence: Evidence, store: Store): Promise<string[]> {
  const { history, runs, commandMarks } = evidence;
  const operation =
    history.operationOfRequest.get(runs.get(runId)?.requestId ?? '') ??
    history.operations.find((each) => promisedRun(each) === runId);
  const events = [...requestEvents(operation), ...attemptEvents(runId, history)];
  events.push(...faultEvents(history, events));
  events.sort((left, right) => left.at - right.at);
  const marks = commandMarks.filter((mark) => mark.runId === runId && mark.sign !== 'tick');
  return [
    `${runId} of ${operation?.slug}, ${operation?.scenario}, idempotency key: ${operation?.idempotencyKey ?? 'none'}`,
    ...events.map(({ at, text }) => `${new Date(at).toISOString().slice(11, 23)}  ${text}`),
    ...marks.map(({ execution, sign }) => `command ${execution}: ${sign}`),
    `as first seen ended: ${JSON.stringify(history.terminal.get(runId))}`,
    `in the store: ${JSON.stringify(runs.get(runId))}`,
    `in BullMQ: ${await bullState(runId, store).catch(String)}`,
  ];
}

function requestEvents(operation: Operation | undefined): Event[] {
  return (operation?.requests ?? []).flatMap(({ id, api, sentAt, answeredAt, answer }) => {
    const sent = { at: sentAt, text: `request ${id} sent to ${api}` };
    if (answeredAt === undefined) return [sent];
    return [sent, { at: answeredAt, text: `request ${id} answered ${JSON.stringify(answer)}` }];
  });
}

function attemptEvents(runId: string, { attempts, deliveries }: History): Event[] {
  const events: Event[] = [];
  for (const { worker, startedAt, endedAt, isLockLost } of attempts.get(runId) ?? []) {
    events.push({ at: startedAt, text: `${worker} says that it starts the run` });
    const how = isLockLost ? 'lost its lock' : 'is done';
    if (endedAt !== undefined) events.push({ at: endedAt, text: `${worker} says that it ${how}` });
  }
  for (const { runId: id, execution, sign, at = 0, payload = '' } of deliveries) {
    if (id === runId) events.push({ at, text: `${execution}: ${sign} ${payload}` });
  }
  return events;
}

function faultEvents({ faults }: History, events: Event[]): Event[] {
  const times = events.map(({ at }) => at);
  const [from, to] = [Math.min(...times) - BEFORE_MS, Math.max(...times) + AFTER_MS];
  return faults
    .filter(({ startedAt }) => startedAt > from && startedAt < to)
    .map(({ kind, parts, startedAt, endedAt = startedAt }) => {
      return { at: startedAt, text: `fault: ${kind} ${parts.join(' ')} for ${endedAt - startedAt} ms` };
    });
}

async function bullState(runId: string, { redis, keys }: Store): Promise<string> {
  const queue = await new QueueOpener(redis, keys, () => undefined).open();
  const [state, job] = [await queue.getJobState(runId), await queue.getJob(runId)];
  const lockMs = await redis.pttl(`${keys.queuePrefix}:runs:${runId}:lock`);
  const automationId = job?.data.automationId ?? '';
  const lane = await redis.zscore(keys.lane(automationId), runId);
  const hasPlace = await redis.sismember(keys.laneRunning(automationId), runId);
  const places = { waitsInLane: lane !== null, hasPlace: hasPlace === 1, lockMs };
  return `${state} ${JSON.stringify(places)} ${JSON.stringify(job?.asJSON())}`;
}
