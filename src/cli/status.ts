import { formatAge } from '../core/age.ts';
import { isFailure, type Run, shortRunId } from '../core/run.ts';
import { type AutomationActivity, demandOf, lastRuns, readActivity } from '../ops/automation-activity.ts';
import { describeKept } from '../ops/kept.ts';
import {
  ageOf,
  cureForHeldSlots,
  cureForPaused,
  describeAbandoned,
  describeHeldSlots,
  describePaused,
  describeWorkers,
  noneTakesRuns,
  type Overview,
  overviewOf,
} from '../ops/overview.ts';
import { describeHold } from '../ops/waiting-run.ts';
import type { EventQueueState } from '../store/event-outbox.ts';
import { refusalText } from '../store/redis-refusal.ts';
import type { Store } from '../store/store.ts';
import { type CommandContext, withStore } from './context.ts';
import { OrcCommand } from './orc-command.ts';
import { type Output, pairs } from './output.ts';
import { runForPrograms } from './run-reference.ts';

/** Rows shown of each table, so that the output fits one screen. */
const MAX_ROWS = 10;

/** Automations named that are asked most. */
const MAX_BUSIEST = 3;

/** Automations and receivers named of those whose events are stuck. */
const MAX_NAMED = 3;

/** One line that begins with what is wrong. */
export function summarise(overview: Overview): string {
  const { queued, paused, retrying, running, abandoned, oldestQueued, workersAlive, workersDraining } =
    overview;
  const age = oldestQueued ? `, the oldest for ${ageOf(oldestQueued.acceptedAt)}` : '';
  return [
    workersAlive === 0
      ? 'NO WORKER IS ALIVE'
      : `${workersAlive} worker${workersAlive === 1 ? '' : 's'} alive`,
    ...(workersDraining.length > 0 ? [`${workersDraining.length} draining`] : []),
    `${queued} queued${paused > 0 ? ` (${paused} held by pause)` : ''}${age}`,
    `${running.length} running`,
    ...(abandoned.length > 0 ? [`${abandoned.length} ABANDONED: orc status`] : []),
    ...(describeHeldSlots(overview) === undefined ? [] : ['ALL SLOTS ARE HELD: orc status']),
    ...(retrying > 0 ? [`${retrying} retrying`] : []),
  ].join(' · ');
}

/** `orc status`: what waits, what executes and what is stuck, on one screen. */
export function statusCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  return new OrcCommand('status')
    .description('show what waits, what executes and what is stuck, on one screen')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The automations that failed most in the last hour come first (FAILED/H); OPEN counts runs that have not ended; held means that
runs wait for --concurrency. \`orc runs list --failed --since 1h\` says what went wrong.

"kept" is what the logs, results and artifacts of ended runs take of KEEP_BYTES, in Redis' memory.
\`orc doctor\` finds what is wrong with the installation.`,
      examples: ['orc status', 'watch orc status'],
    })
    .action(async ({ json }: { json?: boolean }) => {
      const { overview, hold, automations, kept, events, refusal } = await withStore(
        context,
        async (store) => {
          const found = await overviewOf(store);
          const { oldestQueued } = found;
          const activities = await readActivity(store);
          // Each costs two round trips, and people see the first ones only.
          const shown = json ? activities : activities.slice(0, MAX_ROWS);
          const latest = await lastRuns(store, shown);
          return {
            overview: found,
            // Without a worker, no place would help.
            hold:
              oldestQueued && found.workersAlive > 0 ? await describeHold(store, oldestQueued) : undefined,
            automations: activities.map((each, index) => ({ ...each, lastRun: latest[index] })),
            kept: await store.kept.usage(context.config().KEEP_BYTES),
            events: await eventsOf(store),
            refusal: await refusalOfWrites(store),
          };
        },
      );
      if (json) {
        const redisRefuses = refusal && { redisRefuses: refusal };
        return output.json({ ...forPrograms(overview, automations), kept, events, ...redisRefuses });
      }
      const { workersAlive, queued, retrying, running, abandoned, oldestQueued } = overview;
      const pausedText = describePaused(overview);
      const heldSlots = describeHeldSlots(overview);
      const abandonedText = describeAbandoned(overview);
      const waiting = oldestQueued && [
        `, the oldest for ${ageOf(oldestQueued.acceptedAt)}: ${oldestQueued.id} of ${oldestQueued.automation}`,
        ...(hold === undefined ? [] : [hold.text]),
      ];
      const facts = pairs([
        ['redis', refusal && output.style('red', `refuses writes: ${refusal}; the cure: orc doctor`)],
        [
          'workers',
          workersAlive === 0
            ? output.style('red', `${noneTakesRuns(overview)}; start one: orc worker`)
            : describeWorkers(overview),
        ],
        ['slots', heldSlots && output.style('red', `${heldSlots}; ${cureForHeldSlots(overview)}`)],
        ['queued', `${queued}${waiting?.join(', ') ?? ''}`],
        ['paused', pausedText && output.style('yellow', `${pausedText}: ${cureForPaused(overview)}`)],
        ['retrying', `${retrying}`],
        ['running', `${running.length}`],
        ['abandoned', abandonedText && output.style('red', abandonedText)],
        ['kept', describeKept(kept)],
        ['events', describeEvents(events, output)],
        ['busiest', describeBusiest(automations)],
      ]);
      for (const line of facts) output.line(line);
      print(
        ['RUNNING', 'AUTOMATION', 'FOR', 'ATTEMPT', 'WORKER'],
        running.map(({ id, automation, startedAt, attempt, worker }) => [
          output.isTerminal ? shortRunId(id) : id,
          automation,
          startedAt ? ageOf(startedAt) : '',
          `${attempt}`,
          `${worker ?? ''}${abandoned.includes(id) ? ' (gone)' : ''}`,
        ]),
      );
      print(
        ['AUTOMATION', 'STATE', 'FAILED/H', 'OPEN', 'LAST RUN', 'LAST SUCCESS'],
        automations.map(({ slug, state, failedLately, open, lastRun, lastSuccess }) => [
          slug,
          state,
          failedLately > 0 ? output.style('red', `${failedLately}`) : '0',
          `${open}`,
          describeLast(lastRun),
          lastSuccess ? formatAge(lastSuccess) : 'never',
        ]),
      );
    });

  function describeLast(run: Run | undefined): string {
    if (!run) return 'none';
    const text = `${run.status} ${formatAge(run.endedAt ?? run.acceptedAt)}`;
    return isFailure(run.status) ? output.style('red', text) : text;
  }

  function print(header: string[], rows: string[][]): void {
    if (rows.length === 0) return;
    output.line();
    output.table(header, rows.slice(0, MAX_ROWS));
    if (rows.length > MAX_ROWS) output.line(`… and ${rows.length - MAX_ROWS} more; all of them: --json`);
  }
}

/** Why Redis takes no writes; undefined if it does. */
async function refusalOfWrites({ workers }: Store): Promise<string | undefined> {
  return workers.probe().then(
    () => undefined,
    (error: Error) => refusalText(error.message),
  );
}

/** What waits to be sent to the URLs of automations, and what was dropped. */
interface EventsOverview {
  waiting: number;
  dropped: number;
  queues: EventQueueState[];
  /** The most first. */
  droppedBy: { slug: string; dropped: number }[];
}

async function eventsOf(store: Store): Promise<EventsOverview> {
  const [queues, drops] = await Promise.all([store.events.queues(), store.events.drops()]);
  const waiting = queues.reduce((sum, queue) => sum + queue.waiting, 0);
  const dropped = [...drops.values()].reduce((sum, { count }) => sum + count, 0);
  return {
    waiting,
    dropped,
    queues,
    droppedBy: [...drops]
      .map(([slug, { count }]) => ({ slug, dropped: count }))
      .sort((a, b) => b.dropped - a.dropped),
  };
}

/** Undefined when all is delivered and nothing was dropped. */
function describeEvents({ waiting, dropped, queues, droppedBy }: EventsOverview, output: Output) {
  if (waiting + dropped === 0) return undefined;
  const failing = queues
    .filter(({ failing }) => failing)
    .map(({ slug, receiver }) => `${slug} (${receiver})`);
  const parts = [
    `${waiting} wait`,
    ...(failing.length > 0 ? [`cannot be delivered: ${shortList(failing)}; why: orc doctor`] : []),
    ...(dropped > 0 ? [`${dropped} dropped: ${shortList(droppedBy.map(({ slug }) => slug))}`] : []),
  ];
  return failing.length + dropped > 0 ? output.style('yellow', parts.join('; ')) : parts.join('; ');
}

function shortList(names: readonly string[]): string {
  return `${names.slice(0, MAX_NAMED).join(', ')}${names.length > MAX_NAMED ? ', …' : ''}`;
}

type ShownAutomation = AutomationActivity & { lastRun: Run | undefined };

/** Runs have the names that they have everywhere else in JSON. */
function forPrograms({ oldestQueued, running, ...overview }: Overview, automations: ShownAutomation[]) {
  return {
    ...overview,
    ...(oldestQueued && { oldestQueued: runForPrograms(oldestQueued) }),
    running: running.map(runForPrograms),
    automations: automations.map(({ lastRun, ...automation }) => ({
      ...automation,
      ...(lastRun && { lastRun: runForPrograms(lastRun) }),
    })),
  };
}

/** Those of which most was asked in the last hour. */
function describeBusiest(automations: readonly AutomationActivity[]): string | undefined {
  const busiest = automations.filter((each) => demandOf(each) > 0).sort((a, b) => demandOf(b) - demandOf(a));
  if (busiest.length === 0) return undefined;
  const named = busiest.slice(0, MAX_BUSIEST).map(({ slug, acceptedLately, rejectedLately }) => {
    const rejected = rejectedLately > 0 ? ` and rejected ${rejectedLately}` : '';
    return `${slug} (accepted ${acceptedLately}${rejected})`;
  });
  return `in the last hour: ${named.join(', ')}`;
}
