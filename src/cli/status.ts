import { Command } from 'commander';
import type { QueueOverview } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import { type CommandContext, withStore } from './context.ts';
import { formatDuration } from './durations.ts';
import { helpText } from './help-text.ts';
import { pairs, table } from './output.ts';

/** Runs and automations in progress that are shown at most, so that it stays one screen. */
const MAX_ROWS = 10;

/** How things stand: what waits, what executes, who is there to do it. */
export interface Overview extends QueueOverview {
  workersAlive: number;
}

export async function overviewOf(store: Store): Promise<Overview> {
  const [overview, { workersAlive }] = await Promise.all([store.runs.overview(), store.workers.probe()]);
  return { ...overview, workersAlive };
}

/** One line, with what is wrong named first. */
export function summarise({ queued, retrying, running, oldestQueued, workersAlive }: Overview): string {
  const age = oldestQueued ? `, the oldest for ${ageOf(oldestQueued.acceptedAt)}` : '';
  return [
    workersAlive === 0 ? 'NO WORKER IS ALIVE' : `${count(workersAlive, 'worker')} alive`,
    `${queued} queued${age}`,
    `${running.length} running`,
    ...(retrying > 0 ? [`${retrying} retrying`] : []),
  ].join(' · ');
}

/** `orc status`: one screen on what waits, what executes and what is stuck. */
export function statusCommand(context: CommandContext): Command {
  const { output } = context;
  return new Command('status')
    .description('show what waits, what executes and what is stuck, on one screen')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      helpText({
        notes: `What is wrong with the installation, and how to cure it, says \`orc doctor\`.`,
        examples: ['orc status', 'watch orc status'],
      }),
    )
    .action(async ({ json }: { json?: boolean }) => {
      const { overview, automations } = await withStore(context, async (store) => ({
        overview: await overviewOf(store),
        automations: await automationsOf(store),
      }));
      if (json) return output.json({ ...overview, automations });
      const { workersAlive, queued, retrying, running, oldestQueued } = overview;
      const facts = pairs([
        [
          'workers',
          workersAlive === 0
            ? output.style('red', 'none is alive; start one: orc worker')
            : `${workersAlive} alive`,
        ],
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
    const [head = '', ...lines] = table(header, rows.slice(0, MAX_ROWS));
    output.line();
    output.line(output.style('dim', head));
    for (const line of lines) output.line(line);
    if (rows.length > MAX_ROWS) output.line(`… and ${rows.length - MAX_ROWS} more; all of them: --json`);
  }
}

/** The automations with the most runs that have not ended first. */
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

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
