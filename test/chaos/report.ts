import { FAULT_KINDS, type Fault, type History, type Operation, promisedRun, type Work } from './history.ts';
import type { Verdict } from './verdict.ts';

/** The figures of one scenario, on a few lines. */
export function scenarioReport(history: History, scenario: string): string[] {
  const operations = history.operations.filter((operation) => operation.scenario === scenario);
  const faults = history.faults.filter((fault) => fault.scenario === scenario);
  const runIds = new Set(operations.flatMap((operation) => promisedRun(operation) ?? []));
  const statuses = new Map<string, number>();
  for (const runId of runIds) count(statuses, history.terminal.get(runId)?.status ?? 'open');
  return [
    `${scenario}`,
    `  requests    ${requestFigures(operations)}`,
    `  accepted    ${runIds.size} runs; ${tallyText(statuses)}`,
    `  faults      ${tallyText(faultTally(faults)) || 'none'}`,
    `  next 202    ${recoveryText(faults, 'accepting')}`,
    `  next run    ${recoveryText(faults, 'executing')}`,
  ];
}

/** The table at the end. */
export function summary(history: History, verdict: Verdict, minutes: number): string[] {
  const { operations, faults } = history;
  const { violations, duplicates, executions, uncertainRuns, lostByRestore, givenUp } = verdict;
  const promised = new Set(operations.flatMap((operation) => promisedRun(operation) ?? []));
  const statuses = new Map<string, number>();
  for (const { status } of history.terminal.values()) count(statuses, status);
  const of = (...kinds: string[]) => violations.filter(({ kind }) => kinds.includes(kind)).length;
  const causes = Object.entries(duplicates).map(([cause, number]) => `${cause}: ${number}`);
  const rows = [
    ['time', `${minutes.toFixed(1)} min`],
    ['requests', requestFigures(operations)],
    ['accepted', `${promised.size} runs`],
    ['ended', tallyText(statuses)],
    ['kills', tallyText(faultTally(faults.filter(({ kind }) => kind.endsWith('killed'))))],
    ['other faults', tallyText(faultTally(faults.filter(({ kind }) => !kind.endsWith('killed'))))],
    ['lost', `${of('lost', 'never executed')}`],
    ['undone by a restore', `${lostByRestore} runs lost that were accepted after the backup`],
    ['stuck', `${of('stuck', 'not recovered')}`],
    ['enqueued twice', `${of('enqueued twice', 'one key, several runs', 'refused, yet enqueued')}`],
    ['executions', `${executions}; ${uncertainRuns} of runs whose senders heard nothing`],
    ['repeated', `${causes.join(', ')}; without a cause: ${of('repeated without a cause')}`],
    ['repeated in spite of fail', `${of('repeated in spite of --on-worker-loss fail')}`],
    [
      'given up',
      `${givenUp.runs} runs whose worker died; ${givenUp.neverExecuted} of them were never executed`,
    ],
    ['two at once', `${of('two at once')}`],
    ['out of order', `${of('out of order')}`],
    ['started while paused', `${of('started while paused')} in ${history.pauses.length} pauses`],
    ['skipped, yet executed', `${of('skipped, yet executed')}`],
    ['events', `${history.eventsReceived}, of ${history.events.size} runs; lost: ${of('event lost')}`],
    ['events of runs that did not end so', `${of('wrong event')}`],
    ['ended runs that changed', `${of('ended run changed')}`],
    ['other violations', otherViolations(violations.map(({ kind }) => kind))],
    ...FAULT_KINDS.map((kind) => {
      const own = faults.filter((fault) => fault.kind === kind);
      const texts = (['accepting', 'executing'] as const)
        .filter((work) => own.some(({ recoveryMs }) => recoveryMs[work] !== undefined))
        .map((work) => `next ${work === 'accepting' ? '202' : 'run'} ${recoveryText(own, work)}`);
      return [`after ${kind}`, texts.join('; ')];
    }).filter(([, text]) => text !== ''),
    ['after a worker died', interruptedText(history)],
  ];
  const width = Math.max(...rows.map(([name = '']) => name.length));
  return rows.map(([name = '', text = '']) => `${name.padEnd(width)}  ${text}`);
}

const REPORTED = [
  'lost',
  'never executed',
  'stuck',
  'not recovered',
  'enqueued twice',
  'one key, several runs',
  'refused, yet enqueued',
  'repeated without a cause',
  'repeated in spite of --on-worker-loss fail',
  'two at once',
  'out of order',
  'ended run changed',
  'started while paused',
  'skipped, yet executed',
  'event lost',
  'wrong event',
];

function otherViolations(kinds: string[]): string {
  const tally = new Map<string, number>();
  for (const kind of kinds) if (!REPORTED.includes(kind)) count(tally, kind);
  return tallyText(tally) || '0';
}

function requestFigures(operations: readonly Operation[]): string {
  const tally = new Map<string, number>();
  let sent = 0;
  for (const { requests } of operations) {
    for (const { answer } of requests) {
      sent += 1;
      count(tally, ANSWERS[answer?.kind ?? 'uncertain']);
    }
  }
  return `${sent}; ${tallyText(tally)}`;
}

const ANSWERS = {
  accepted: '202',
  refused: '503',
  uncertain: 'uncertain',
  unsent: 'connection refused',
  unexpected: 'unexpected',
} as const;

function faultTally(faults: readonly Fault[]): Map<string, number> {
  const tally = new Map<string, number>();
  for (const { kind } of faults) count(tally, kind);
  return tally;
}

function recoveryText(faults: readonly Fault[], work: Work): string {
  return timesText(faults.flatMap(({ recoveryMs }) => recoveryMs[work] ?? []));
}

/** From the death of a worker until the runs that it executed had ended. */
function interruptedText({ faults, attempts, terminal }: History): string {
  const deaths = new Map(
    faults
      .filter(({ kind }) => kind === 'worker killed')
      .map(({ parts, startedAt }) => [parts[0], startedAt]),
  );
  const times: number[] = [];
  for (const [runId, records] of attempts) {
    const endedAt = terminal.get(runId)?.endedAt;
    for (const { worker, endedAt: saidAt } of records) {
      const diedAt = deaths.get(worker);
      if (diedAt === undefined || saidAt !== undefined || endedAt === undefined) continue;
      if (endedAt > diedAt) times.push(endedAt - diedAt);
    }
  }
  return `its runs ended ${timesText(times)}`;
}

function timesText(times: number[]): string {
  if (times.length === 0) return 'never waited for';
  const sorted = times.toSorted((left, right) => left - right);
  const [median, worst] = [sorted[Math.floor(sorted.length / 2)] ?? 0, sorted.at(-1) ?? 0];
  return `after ${durationText(median)} (median), ${durationText(worst)} (worst) of ${times.length}`;
}

function durationText(ms: number): string {
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function tallyText(tally: ReadonlyMap<string, number>): string {
  return [...tally].map(([name, number]) => `${name}: ${number}`).join(', ');
}

function count(tally: Map<string, number>, name: string): void {
  tally.set(name, (tally.get(name) ?? 0) + 1);
}
