import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { Run } from '../../src/core/run.ts';
import { type Answer, type ChaosAutomation, History, type Mark } from './history.ts';
import { type Evidence, judge } from './verdict.ts';

const AUTOMATION: ChaosAutomation = {
  slug: 'work',
  onWorkerLoss: 'rerun',
  action: 'http',
  executions: 1,
  isExclusive: true,
};

function accepted(runId: string): Answer {
  return { kind: 'accepted', runId, status: 'queued', isReplay: false };
}

/** A run as it is after one request and one execution without any trouble, and all the evidence of it. */
function evidence(changes: Partial<ChaosAutomation> = {}) {
  const history = new History();
  const runs = new Map<string, Run>();
  const commandMarks: Mark[] = [];
  const automation = { ...AUTOMATION, ...changes };
  const all: Evidence = { history, runs, commandMarks, automations: new Map([['work', automation]]) };
  const mark = (runId: string, execution: string, sign: Mark['sign'], payload?: string) =>
    history.deliveries.push({
      slug: 'work',
      runId,
      execution,
      sign,
      ...(payload !== undefined && { payload }),
    });
  const send = (answer: Answer, operation = history.newOperation('work', 'test')) => {
    const request = history.newRequest(operation, 'api-1');
    history.answered(request, answer);
    return { operation, request };
  };
  const store = (runId: string, requestId: string, run: Partial<Run> = {}) =>
    runs.set(runId, {
      id: runId,
      automation: 'work',
      status: 'succeeded',
      acceptedAt: new Date(),
      attempt: 1,
      maxAttempts: 1,
      requestId,
      payloadBytes: 2,
      ...run,
    });
  const execute = (runId: string, execution: string, payload?: string) => {
    mark(runId, execution, 'start', payload);
    mark(runId, execution, 'end');
  };
  const { operation, request } = send(accepted('run_1'));
  store('run_1', request.id);
  execute('run_1', 'delivery 1', operation.payload);
  const kinds = () => judge(all).violations.map(({ kind }) => kind);
  return { history, runs, operation, request, all, mark, send, store, execute, kinds };
}

test('a run that was accepted, executed once and succeeded is no violation', () => {
  expect(evidence().kinds()).toEqual([]);
});

describe('with a URL for events', () => {
  const ID = 'run_01a1fd79-2020-716f-b65b-e40f10ea5e54';
  const EVENT = 'evt_01a1fd79-2020-716f-b65b-e40f10ea5e54';

  function withEvents() {
    const found = evidence({ hasEvents: true });
    found.history.eventReceived('run_1', 'evt_1_succeeded');
    found.store(ID, found.send(accepted(ID)).request.id);
    found.execute(ID, 'delivery 2');
    return found;
  }

  test('a run that has ended and whose event arrived, once or twice, is no violation', () => {
    const { history, kinds } = withEvents();
    for (let count = 0; count < 2; count += 1) history.eventReceived(ID, `${EVENT}_succeeded`);
    expect(kinds()).toEqual([]);
  });

  test('an event that did not arrive is found', () => {
    expect(withEvents().kinds()).toEqual(['event lost']);
  });

  test('an event of another end is found, and one of a run that has not ended', () => {
    const { history, store, request, kinds } = withEvents();
    history.eventReceived(ID, `${EVENT}_failed`);
    expect(kinds()).toEqual(['event lost', 'wrong event']);
    store('run_1', request.id, { status: 'running' });
    expect(kinds()).toEqual(['stuck', 'event lost', 'wrong event', 'wrong event']);
  });
});

test('a run that was skipped was not executed, and only an automation that skips has one', () => {
  const outcome = { status: 'cancelled', reason: 'automation_busy', message: 'Skipped.' } as const;
  const skipped = { status: 'cancelled', outcome } as const;
  for (const isSkipping of [true, false]) {
    const { send, store, kinds, execute } = evidence({ isSkipping });
    store('run_2', send(accepted('run_2')).request.id, skipped);
    expect(kinds()).toEqual(isSkipping ? [] : ['wrong outcome']);
    execute('run_2', 'delivery 2');
    expect(kinds()).toEqual([isSkipping ? 'skipped, yet executed' : 'wrong outcome']);
  }
});

test('a run that began while its automation was paused is found, but not what was under way', () => {
  const { history, kinds } = evidence();
  history.pauses.push(
    { slug: 'work', pausedAt: 10_000, resumedAt: 20_000 },
    { slug: 'other', pausedAt: 0, resumedAt: Number.POSITIVE_INFINITY },
  );
  const start = (at: number) => {
    history.deliveries.push({ slug: 'work', runId: 'run_1', execution: 'delivery 1', sign: 'start', at });
  };
  for (const at of [9000, 11_000, 20_001]) start(at);
  expect(kinds()).toEqual([]);
  start(15_000);
  expect(kinds()).toEqual(['started while paused']);
});

test('a 202 whose run is gone is a lost run', () => {
  const { send, kinds } = evidence();
  send(accepted('run_2'));
  expect(kinds()).toEqual(['lost']);
});

test('a run that has not ended is stuck', () => {
  const { store, request, kinds } = evidence();
  store('run_1', request.id, { status: 'running' });
  expect(kinds()).toEqual(['stuck']);
});

test('a run that succeeded and was never executed is found', () => {
  const { send, store, kinds } = evidence();
  store('run_2', send(accepted('run_2')).request.id);
  expect(kinds()).toEqual(['never executed']);
});

test('two runs of one request are found, whether it was accepted or uncertain', () => {
  const { send, store, execute, request, kinds } = evidence();
  store('run_2', request.id);
  execute('run_2', 'delivery 2');
  const uncertain = send({ kind: 'uncertain', reason: 'cut' });
  for (const runId of ['run_3', 'run_4']) {
    store(runId, uncertain.request.id);
    execute(runId, `delivery of ${runId}`);
  }
  expect(kinds()).toEqual(['enqueued twice', 'enqueued twice']);
});

test('two runs promised for one idempotency key are found', () => {
  const { send, operation, kinds } = evidence();
  send(accepted('run_2'), operation);
  expect(kinds()).toEqual(['one key, several runs', 'lost']);
});

test.each(['refused', 'unsent'] as const)('a run of a request that was %s is found', (kind) => {
  const { send, store, execute, kinds } = evidence();
  const answer: Answer = kind === 'refused' ? { kind, error: 'queue_unavailable' } : { kind };
  store('run_2', send(answer).request.id);
  execute('run_2', 'delivery 2');
  expect(kinds()).toEqual(['refused, yet enqueued']);
});

test('a run, and an execution, that nobody asked for are found', () => {
  const { store, execute, kinds } = evidence();
  store('run_2', 'nobody');
  execute('run_2', 'delivery 2');
  execute('run_3', 'delivery 3');
  expect(kinds()).toEqual(['unknown run', 'unknown execution']);
});

test('a second execution is a violation unless the worker of the first one died', () => {
  const { history, execute, kinds, all } = evidence();
  history.attemptStarted('run_1', 'worker-1#1');
  history.attemptStarted('run_1', 'worker-2#1');
  execute('run_1', 'delivery 2');
  expect(kinds()).toEqual(['repeated without a cause']);
  history.faultStarted('worker killed', 'test', ['worker-1#2']);
  expect(kinds()).toEqual(['repeated without a cause']);
  history.faultStarted('worker killed', 'test', ['worker-1#1']);
  expect(judge(all)).toMatchObject({ violations: [], duplicates: { 'worker killed': 1 } });
});

test('with --on-worker-loss fail a second execution is a violation even when the worker died', () => {
  const { history, execute, kinds } = evidence({ onWorkerLoss: 'fail' });
  history.attemptStarted('run_1', 'worker-1#1');
  history.attemptStarted('run_1', 'worker-2#1');
  history.faultStarted('worker killed', 'test', ['worker-1#1']);
  execute('run_1', 'delivery 2');
  expect(kinds()).toEqual(['repeated in spite of --on-worker-loss fail']);
});

test('a run that still executes while the next one of its lane does is found', () => {
  const { send, store, mark, kinds } = evidence();
  for (const runId of ['run_2', 'run_3']) store(runId, send(accepted(runId)).request.id);
  mark('run_2', 'delivery 2', 'start');
  mark('run_3', 'delivery 3', 'start');
  mark('run_2', 'delivery 2', 'end');
  mark('run_3', 'delivery 3', 'end');
  expect(kinds()).toEqual(['two at once']);
});

test('a run that begins before one that was accepted earlier is found', () => {
  const { send, store, execute, kinds } = evidence();
  const [second, third] = ['run_2', 'run_3'].map((runId) => {
    const { request } = send(accepted(runId));
    store(runId, request.id);
    return request;
  });
  if (!second || !third) throw new Error('unreachable');
  second.answeredAt = Date.now() + 1000;
  third.sentAt = Date.now() + 2000;
  execute('run_3', 'delivery 2');
  execute('run_2', 'delivery 3');
  expect(kinds()).toEqual(['out of order']);
});

test('a run whose work never fails, but that ended otherwise, is found', () => {
  const { store, request, kinds } = evidence();
  const outcome = { status: 'failed', reason: 'worker_lost', message: 'OOM' } as const;
  store('run_1', request.id, { status: 'failed', outcome });
  expect(kinds()).toEqual(['wrong outcome']);
});

test('a run that ends in one of the ways in which its automation may fail is in order', () => {
  const { store, request, kinds } = evidence({ failures: ['timeout'] });
  const outcome = { status: 'timed_out', reason: 'timeout', message: 'No answer came.' } as const;
  store('run_1', request.id, { status: 'timed_out', outcome });
  expect(kinds()).toEqual([]);
});

test('a payload that is not the one that was sent is found', () => {
  const { mark, kinds } = evidence({ executions: 2 });
  mark('run_1', 'delivery 2', 'start', '{}');
  expect(kinds()).toEqual(['wrong payload']);
});

test('a fault after which nothing has to work again is not waited for', () => {
  const { history } = evidence();
  history.faultEnded(history.faultStarted('automation paused', 'test', ['work']), []);
  expect(history.unrecovered()).toEqual([]);
});

test('an answer that no fault explains is found', () => {
  const { send, kinds } = evidence();
  send({ kind: 'unexpected', statusCode: 500, body: '{}' });
  expect(kinds()).toEqual(['unexpected answer']);
});

describe('a restore of Redis', () => {
  const takenAt = Date.now() - 60_000;
  const restoredAt = takenAt + 10_000;
  const runIdOf = (acceptedAt: number) => `run_${uuidv7({ msecs: acceptedAt })}`;

  /** A run that is accepted at a time, as seen after the restore. */
  function restored(acceptedAt: number) {
    const all = evidence({ isExclusive: false });
    all.history.restores.push({ takenAt, restoredAt });
    const runId = runIdOf(acceptedAt);
    const { request, operation } = all.send(accepted(runId));
    request.sentAt = acceptedAt - 1;
    request.answeredAt = acceptedAt + 1;
    return { ...all, runId, request, operation };
  }

  test.each([
    ['before the backup', takenAt - 1000, ['lost']],
    ['between backup and restore', takenAt + 1000, []],
    ['after it', restoredAt + 1000, ['lost']],
  ])('takes away runs that were accepted %s: violations %#', (_, acceptedAt, violations) => {
    const { kinds, all } = restored(acceptedAt);
    expect(kinds()).toEqual(violations);
    expect(judge(all).lostByRestore).toBe(violations.length === 0 ? 1 : 0);
  });

  test.each([
    ['ended before the backup', takenAt - 10_000, takenAt - 5000, ['repeated without a cause']],
    ['ended after the backup', takenAt - 10_000, takenAt + 5000, []],
    ['was accepted after the restore', restoredAt + 1, restoredAt + 5000, ['repeated without a cause']],
  ])(
    'is a cause of a second execution for a run that %s: violations %#',
    (_, acceptedAt, endedAt, violations) => {
      const { runId, store, request, execute, kinds } = restored(acceptedAt);
      store(runId, request.id, { endedAt: new Date(endedAt) });
      execute(runId, 'delivery 1');
      execute(runId, 'delivery 2');
      expect(kinds()).toEqual(violations);
    },
  );

  test.each([
    ['before the backup', takenAt - 10_000, ['unknown execution']],
    ['after the backup', takenAt + 1000, []],
  ])('takes away runs that nobody was promised %s: violations %#', (_, acceptedAt, violations) => {
    const { execute, history, kinds } = evidence();
    history.restores.push({ takenAt, restoredAt });
    execute(runIdOf(acceptedAt), 'delivery 1');
    expect(kinds()).toEqual(violations);
  });

  test('gives an operation that was promised a run again the place of its second run', () => {
    const { history, request: first, send, store, execute, kinds } = evidence();
    Object.assign(first, { sentAt: takenAt - 2000, answeredAt: takenAt - 1999 });
    history.restores.push({ takenAt, restoredAt });
    const askAt = (sentAt: number, operation = history.newOperation('work', 'test')) => {
      const runId = runIdOf(sentAt);
      const { request } = send(accepted(runId), operation);
      Object.assign(request, { sentAt, answeredAt: sentAt + 1 });
      return { runId, request, operation };
    };
    const { operation } = askAt(takenAt + 1000);
    const other = askAt(restoredAt + 1000);
    const again = askAt(restoredAt + 2000, operation);
    for (const { runId, request } of [other, again]) {
      store(runId, request.id);
      execute(runId, `delivery of ${runId}`);
    }
    expect(kinds()).toEqual([]);
  });

  test('takes away no run that was promised again after it', () => {
    const { send, operation, kinds } = restored(takenAt + 1000);
    const again = send(accepted(runIdOf(restoredAt + 1000)), operation);
    again.request.sentAt = restoredAt + 1000;
    expect(kinds()).toEqual(['lost']);
  });
});
