import { SLOTS_HELD_MS, slotsHeldSince } from '../core/slots.ts';
import type { QueueOverview } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import type { AliveWorkers } from '../store/workers.ts';
import { type CommandContext, withStore } from './context.ts';
import { formatDuration } from './durations.ts';
import { OrcCommand } from './orc-command.ts';
import { pairs } from './output.ts';

/** Rows shown of each table, so that the output fits one screen. */
const MAX_ROWS = 10;

/** Automations named as those whose runs hold all slots. */
const MAX_HOLDERS = 3;

/** What waits, what executes, and which workers are alive. */
export interface Overview extends QueueOverview, AliveWorkers {
  /** Since when the same runs have held every slot of every worker; absent when one is free. */
  slotsHeldSince?: Date;
}

export async function overviewOf(store: Store): Promise<Overview> {
  const [overview, workers] = await Promise.all([store.runs.overview(), store.workers.alive()]);
  const startTimes = overview.running.flatMap(({ startedAt }) => startedAt ?? []);
  const heldSince = slotsHeldSince(startTimes, workers.slots);
  return { ...overview, ...workers, ...(heldSince && { slotsHeldSince: heldSince }) };
}

/** How long all slots have been held, and by which runs; undefined unless it is long. */
export function describeHeldSlots({ slots, slotsHeldSince: since, running }: Overview): string | undefined {
  const [longest] = running;
  if (!since || !longest || Date.now() - since.getTime() < SLOTS_HELD_MS) return undefined;
  const holders = new Map<string, number>();
  for (const { automation } of running) holders.set(automation, (holders.get(automation) ?? 0) + 1);
  const most = [...holders].sort(([, left], [, right]) => right - left).slice(0, MAX_HOLDERS);
  const names = most.map(([automation, runs]) => `${runs} by ${automation}`).join(', ');
  return `all ${slots} have been held for ${ageOf(since)}: ${names}; longest by ${longest.id}`;
}

/** What frees a slot or adds one. */
export function cureForHeldSlots({ running }: Overview): string {
  return `orc runs cancel ${running[0]?.id}, or start another worker: orc worker`;
}

/** One line that begins with what is wrong. */
export function summarise(overview: Overview): string {
  const { queued, retrying, running, oldestQueued, workersAlive } = overview;
  const age = oldestQueued ? `, the oldest for ${ageOf(oldestQueued.acceptedAt)}` : '';
  return [
    workersAlive === 0
      ? 'NO WORKER IS ALIVE'
      : `${workersAlive} worker${workersAlive === 1 ? '' : 's'} alive`,
    `${queued} queued${age}`,
    `${running.length} running`,
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
      notes: `\`orc doctor\` finds what is wrong with the installation.`,
      examples: ['orc status', 'watch orc status'],
    })
    .action(async ({ json }: { json?: boolean }) => {
      const { overview, automations } = await withStore(context, async (store) => ({
        overview: await overviewOf(store),
        automations: await automationsOf(store),
      }));
      if (json) return output.json({ ...overview, automations });
      const { workersAlive, queued, retrying, running, oldestQueued } = overview;
      const heldSlots = describeHeldSlots(overview);
      const facts = pairs([
        [
          'workers',
          workersAlive === 0
            ? output.style('red', 'none is alive; start one: orc worker')
            : `${workersAlive} alive`,
        ],
        ['slots', heldSlots && output.style('red', `${heldSlots}; ${cureForHeldSlots(overview)}`)],
        [
          'queued',
          `${queued}${oldestQueued ? `, the oldest for ${ageOf(oldestQueued.acceptedAt)}: ${oldestQueued.id} of ${oldestQueued.automation}` : ''}`,
        ],
        ['retrying', `${retrying}`],
        ['running', `${running.length}`],
      ]);
      for (const line of facts) output.line(line);
      print(
        ['RUNNING', 'AUTOMATION', 'FOR', 'ATTEMPT', 'WORKER'],
        running.map(({ id, automation, startedAt, attempt, worker }) => [
          id,
          automation,
          startedAt ? ageOf(startedAt) : '',
          `${attempt}`,
          worker ?? '',
        ]),
      );
      print(
        ['AUTOMATION', 'NOT ENDED', 'LAST SUCCESS'],
        automations.map(({ slug, open, lastSuccess }) => [
          slug,
          `${open}`,
          lastSuccess ? `${ageOf(lastSuccess)} ago` : 'never',
        ]),
      );
    });

  function print(header: string[], rows: string[][]): void {
    if (rows.length === 0) return;
    output.line();
    output.table(header, rows.slice(0, MAX_ROWS));
    if (rows.length > MAX_ROWS) output.line(`… and ${rows.length - MAX_ROWS} more; all of them: --json`);
  }
}

/** The automations, those with the most open runs first. */
async function automationsOf(store: Store) {
  const [slugs, successes] = await Promise.all([store.automations.slugs(), store.index.lastSuccesses()]);
  const open = await store.index.countOpen(slugs);
  return slugs
    .map((slug, index) => ({ slug, open: open[index] ?? 0, lastSuccess: successes.get(slug) }))
    .sort((a, b) => b.open - a.open);
}

function ageOf(time: Date): string {
  return formatDuration(Math.max(0, Date.now() - time.getTime()));
}
