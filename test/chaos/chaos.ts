import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Chance } from './chance.ts';
import { Faults } from './faults.ts';
import type { Incident } from './history.ts';
import { scenarioReport, summary } from './report.ts';
import { SCENARIOS, type Scenario } from './scenarios.ts';
import { Stage } from './stage.ts';
import { storyOf } from './story.ts';
import { type Evidence, judge, runsWithoutEvent } from './verdict.ts';

/** How long one scenario goes on, in milliseconds: in a brief run, and in each round of one with `--minutes`. */
const BRIEF_MS = 2500;
const ROUND_MS = 20_000;

/** Operations a second while nothing is broken. */
const RATE = 80;

/** Every run accepted before the end of a fault has ended this long after it, in milliseconds. */
const STUCK_MS = 60_000;

/** After its last fault, a service that still accepts or executes nothing has not recovered; in milliseconds. */
const RECOVERY_MS = 15_000;

const POLL_MS = 100;
const MINUTE_MS = 60_000;
const STORIES = 1;
const LISTED_VIOLATIONS = 20;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    seed: { type: 'string' },
    scenario: { type: 'string' },
  },
});
const minutes = values.minutes === undefined ? undefined : Number(values.minutes);
const seed = Number(values.seed ?? Date.now() % 1_000_000_000);
const chosen = SCENARIOS.filter(({ name, isLong }) =>
  values.scenario === undefined ? minutes !== undefined || !isLong : name === values.scenario,
);
if ((minutes !== undefined && !(minutes > 0)) || !Number.isInteger(seed) || chosen.length === 0) {
  console.error('usage: npm run chaos -- [--minutes N] [--seed N] [--scenario NAME]');
  console.error(`scenarios: ${SCENARIOS.map(({ name }) => name).join(', ')}`);
  process.exit(2);
}

const stopping = new AbortController();
const stage = await Stage.create();
process.once('exit', () => stage.abandon());
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // Who asks twice does not want to wait.
    if (stopping.signal.aborted) process.exit(1);
    console.error(`${signal}: stopping`);
    stopping.abort();
  });
}
try {
  process.exitCode = (await run()) ? 0 : 1;
} catch (error) {
  if (!stopping.signal.aborted) throw error;
  process.exitCode = 130;
} finally {
  await stage.close();
}

async function run(): Promise<boolean> {
  const startedAt = Date.now();
  const length = minutes === undefined ? `${BRIEF_MS / 1000} s each` : `${minutes} min`;
  console.log(`seed ${seed}, ${chosen.length} scenarios, ${length}, ${RATE} operations/s\n`);
  await stage.open(seed, RATE);
  await playRounds(startedAt + (minutes ?? 0) * MINUTE_MS);
  await stage.clients.close();

  const { history } = stage;
  const { automations } = stage;
  const runs = await stage.finalRuns(Date.now() + STUCK_MS);
  await eventsOf({ history, automations, runs });
  const evidence: Evidence = {
    history,
    automations,
    runs,
    commandMarks: stage.commandMarks(),
  };
  const verdict = judge(evidence);
  for (const { name } of SCENARIOS) {
    if (history.faults.some(({ scenario }) => scenario === name)) print(scenarioReport(history, name));
  }
  print(summary(history, verdict, (Date.now() - startedAt) / MINUTE_MS));
  if (verdict.violations.length === 0) return true;
  await explain(verdict.violations, evidence);
  return false;
}

/** Waits until the event of every run has arrived, or the time is over. */
async function eventsOf(evidence: Parameters<typeof runsWithoutEvent>[0]): Promise<void> {
  const endsAt = Date.now() + STUCK_MS;
  while (runsWithoutEvent(evidence).length > 0 && Date.now() < endsAt) await sleep(POLL_MS);
}

/** All scenarios in an order of chance, again and again while there is time to see what becomes of their runs. */
async function playRounds(endsAt: number): Promise<void> {
  const chance = new Chance(seed);
  const faults = new Faults(stage, chance, stopping.signal);
  const hasTime = () => Date.now() + STUCK_MS < endsAt;
  let isFirst = true;
  do {
    for (const scenario of orderOf(chance)) {
      if (minutes !== undefined && !isFirst && !hasTime()) break;
      await play(scenario, faults, chance, minutes === undefined ? BRIEF_MS : ROUND_MS);
      isFirst = false;
    }
    stage.scenario = 'between rounds';
    await settle();
  } while (hasTime() && stage.history.incidents.length === 0);
}

async function explain(violations: Incident[], evidence: Evidence): Promise<void> {
  print([
    `FAILED: ${violations.length} violations (seed ${seed})`,
    ...violations
      .slice(0, LISTED_VIOLATIONS)
      .map(({ kind, message, runId = '' }) => `${kind}: ${runId} ${message}`),
  ]);
  const offending = [...new Set(violations.flatMap(({ runId }) => runId ?? []))].slice(0, STORIES);
  for (const runId of offending) print(await storyOf(runId, evidence, stage.store));
}

/** Brief runs begin with what takes longest to recover from, so that the wait for it is filled with the others. */
function orderOf(chance: Chance): Scenario[] {
  const shuffled = chance.shuffle(chosen);
  if (minutes !== undefined) return shuffled;
  return [...shuffled.filter(({ isSlow }) => isSlow), ...shuffled.filter(({ isSlow }) => !isSlow)];
}

async function play(scenario: Scenario, faults: Faults, chance: Chance, ms: number): Promise<void> {
  stage.scenario = scenario.name;
  const endsAt = Date.now() + ms;
  await scenario.begin?.(faults);
  do {
    await faults.pause(...scenario.pauseMs);
    await scenario.fault(faults, chance);
  } while (Date.now() < endsAt);
}

/** Waits until the service has recovered and every run accepted until now has ended, with the load going on. */
async function settle(): Promise<void> {
  const { history, observer } = stage;
  const lastFaultAt = Date.now();
  for (;;) {
    const waited = Date.now() - lastFaultAt;
    const open = observer.openBefore(lastFaultAt);
    const unrecovered = history.unrecovered();
    if (open.length === 0 && unrecovered.length === 0) return;
    if (waited > RECOVERY_MS && unrecovered.length > 0) {
      for (const { fault, work } of unrecovered) {
        const message = `${RECOVERY_MS} ms after ${fault.kind} ${fault.parts.join(' ')}: no ${work.join(', no ')}`;
        history.incidents.push({ kind: 'not recovered', message });
      }
      return;
    }
    if (waited > STUCK_MS) {
      for (const runId of open) {
        const message = `it has not ended ${STUCK_MS} ms after the last fault`;
        history.incidents.push({ kind: 'stuck', message, runId });
      }
      return;
    }
    await sleep(POLL_MS, undefined, { signal: stopping.signal });
  }
}

function print(lines: string[]): void {
  console.log(`${lines.join('\n')}\n`);
}
