import { formatDuration } from '../../core/durations.ts';
import type { Run } from '../../core/run.ts';
import type { SurveyedAutomation } from '../../store/automation-survey.ts';
import type { Store } from '../../store/store.ts';
import {
  cureForHeldSlots,
  cureForPaused,
  describeAbandoned,
  describeHeldSlots,
  describePaused,
  describeWorkers,
  noneTakesRuns,
  type Overview,
  overviewOf,
} from '../overview.ts';
import { describeHold } from '../waiting-run.ts';
import { type Finding, ok, problem, warning } from './finding.ts';

/** An idle worker takes a run at once; a run that waits this long, in milliseconds, is stuck. */
const STUCK_MS = 60_000;

/** A run that waits this long, in milliseconds, lacks a free worker or a place of its automation's concurrency. */
const BACKLOG_MS = 600_000;

/** How long a run may take to end after its time limit, in milliseconds. */
const OVERDUE_MS = 60_000;

/** Automations named as those with the most runs. */
const MAX_NAMED = 3;

/** Share of MAX_QUEUED_RUNS. */
const NEARLY_FULL = 0.8;

export interface RunLimits {
  /** MAX_QUEUED_RUNS */
  maxQueuedRuns: number;
  /** RUN_TIMEOUT_MS, in milliseconds. */
  runTimeoutMs: number;
}

/** Whether workers execute runs and no run is stuck. */
export async function checkRuns(store: Store, limits: RunLimits): Promise<Finding[]> {
  const overview = await overviewOf(store);
  const { workersAlive, running } = overview;
  const [isPaused, automations, queued, overdue] = await Promise.all([
    store.runs.isPaused(),
    store.survey.read(new Date()),
    store.runs.countQueued(),
    overdueOf(running, store, limits),
  ]);
  return [
    workersAlive > 0
      ? ok('workers', describeWorkers(overview))
      : problem('workers', `${noneTakesRuns(overview)}: accepted runs wait`, 'orc worker'),
    await checkGit(store),
    checkSlots(overview),
    isPaused
      ? problem(
          'queue',
          'paused: no worker takes runs',
          'resume it by the program that paused it: orc itself never does',
        )
      : await checkQueue(overview, workersAlive, store),
    checkPaused(
      automations.flatMap(({ slug, state }) => (state === 'paused' ? [slug] : [])),
      overview,
    ),
    checkCapacity(queued, limits.maxQueuedRuns),
    checkAbandoned(overview),
    checkOverdue(overdue),
    checkRunCounts(automations),
  ];
}

/** Any worker may take a run that needs a checkout. */
async function checkGit({ workers, automations }: Store): Promise<Finding> {
  const [first, ...others] = await workers.withoutGit();
  if (first === undefined) return ok('git', 'no worker lacks it');
  const names = others.length === 0 ? first : `${first} and ${others.length} more`;
  const needing = (await automations.list()).find(({ action }) => action.type === 'agent' && action.repo);
  if (needing === undefined) return ok('git', `missing on ${names}; no automation needs it`);
  const message = `missing on ${names}: runs of automations with --repo, such as ${needing.slug}, fail there`;
  return problem('git', message, 'install the package git there, and restart the worker');
}

function checkSlots(overview: Overview): Finding {
  const { running, slots = 'an unknown number of' } = overview;
  const heldSlots = describeHeldSlots(overview);
  if (heldSlots === undefined) return ok('slots', `${running.length} of ${slots} held by runs`);
  return warning('slots', `${heldSlots}; no other run starts`, cureForHeldSlots(overview));
}

async function checkQueue(overview: Overview, workersAlive: number, store: Store): Promise<Finding> {
  const { oldestQueued, running, retrying } = overview;
  if (!oldestQueued) return ok('queue', describePaused(overview) ?? 'empty');
  const { id, automation, acceptedAt } = oldestQueued;
  const ageMs = Date.now() - acceptedAt.getTime();
  const message = `${id} of ${automation} has waited for ${formatDuration(ageMs)}`;
  // A run between two attempts keeps its slot of the automation's concurrency, so another run may wait for it.
  if (ageMs >= STUCK_MS && workersAlive > 0 && running.length + retrying === 0) {
    return problem('queue', `${message}, and no worker takes it`, 'restart the workers: orc worker');
  }
  const hold = await describeHold(store, oldestQueued);
  if (hold !== undefined) {
    const held = `${message}, ${hold.text}`;
    return ageMs < BACKLOG_MS ? ok('queue', held) : warning('queue', held, hold.cure);
  }
  if (ageMs < BACKLOG_MS) return ok('queue', message);
  return warning('queue', message, 'start another worker: orc worker');
}

function checkPaused([first, ...others]: string[], overview: Overview): Finding {
  const held = describePaused(overview);
  if (held !== undefined) return warning('paused', held, cureForPaused(overview));
  if (first === undefined) return ok('paused', 'no automation');
  const names = others.length === 0 ? first : `${first} and ${others.length} more`;
  return warning('paused', `${names}; no run waits for that`, `orc automations resume ${first}`);
}

function checkCapacity(queued: number, limit: number): Finding {
  const message = `${queued} of at most ${limit} queued runs`;
  const cure = 'start another worker: orc worker';
  if (queued >= limit) return problem('capacity', `${message}: triggers are answered 503`, cure);
  return queued >= NEARLY_FULL * limit ? warning('capacity', message, cure) : ok('capacity', message);
}

/** Which automations fill Redis. */
function checkRunCounts(automations: readonly SurveyedAutomation[]): Finding {
  const sum = (of: 'open' | 'ended') => automations.reduce((total, each) => total + each[of], 0);
  const most = automations
    .filter(({ open, ended }) => open + ended > 0)
    .sort((a, b) => b.open + b.ended - a.open - a.ended)
    .slice(0, MAX_NAMED)
    .map(({ slug, open, ended }) => `${slug} (${ended} kept, ${open} not ended)`);
  const total = `${sum('ended')} ended runs are kept, ${sum('open')} have not ended`;
  return ok('kept runs', most.length > 0 ? `${total}; most by ${most.join(', ')}` : total);
}

function checkAbandoned(overview: Overview): Finding {
  const text = describeAbandoned(overview);
  if (text === undefined) return ok('abandoned runs', 'none');
  return overview.workersAlive > 0
    ? warning('abandoned runs', text, `orc runs watch ${overview.abandoned[0]}`)
    : problem('abandoned runs', text, 'orc worker');
}

async function overdueOf(running: readonly Run[], store: Store, limits: RunLimits): Promise<Run[]> {
  const slugs = [...new Set(running.map(({ automation }) => automation))];
  const found = await Promise.all(slugs.map((slug) => store.automations.get(slug)));
  const timeouts = new Map(found.map((automation) => [automation?.slug, automation?.timeoutMs]));
  return running.filter(({ automation, startedAt }) => {
    const limitMs = timeouts.get(automation) ?? limits.runTimeoutMs;
    return startedAt !== undefined && Date.now() - startedAt.getTime() > limitMs + OVERDUE_MS;
  });
}

function checkOverdue([first, ...others]: Run[]): Finding {
  if (!first) return ok('overdue runs', 'none');
  return problem(
    'overdue runs',
    `${others.length + 1}, among them ${first.id}: still executing on ${first.worker} after its time limit`,
    `orc runs cancel ${first.id}`,
  );
}
