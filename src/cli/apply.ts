import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import {
  type AutomationEntry,
  decisiveValue,
  definitionOf,
  masked,
  SCHEMA_FILE,
} from '../core/automation-entry.ts';
import { describeChange, shown } from '../core/field-changes.ts';
import { PACKAGE_ROOT } from '../core/package-root.ts';
import type { Store } from '../store/store.ts';
import { carryOut } from './carry-out.ts';
import { type CommandContext, withStore } from './context.ts';
import { withFiles } from './entry-files.ts';
import { OrcCommand } from './orc-command.ts';
import { CommandError, type Output } from './output.ts';
import { forPrograms, planOf, type Step } from './plan.ts';

interface ApplyOptions {
  file: string;
  dryRun?: boolean;
  prune?: boolean;
  keysDir?: string;
  yes?: boolean;
  json?: boolean;
}

/** `orc apply` and `orc export`: automations as a file. */
export function fileCommands(context: CommandContext): OrcCommand[] {
  const { output } = context;
  const schemaPath = fileURLToPath(new URL(SCHEMA_FILE, PACKAGE_ROOT));

  const applying = new OrcCommand('apply')
    .description('apply a file of automations, after showing the plan')
    .requiredOption('-f, --file <path>', 'the file, in YAML or JSON; - is standard input')
    .option('--dry-run', 'show the plan and change nothing')
    .option('--prune', 'delete the automations that the file does not name')
    .option(
      '--keys-dir <dir>',
      'write the keys of new automations to files in this folder instead of printing them',
    )
    .option('-y, --yes', 'do not ask before the plan is carried out')
    .option('--json', 'print JSON, and do not ask')
    .moreHelp({
      notes: `In a terminal it asks before it changes anything; in a script it does not. The key of a new automation is shown only
once or, with --keys-dir, written to a file that is named after the slug and that only you may read; if orc is killed at that
moment, the key is in .<slug>.new-… beside it. Keys of existing automations never change. Without --prune nothing is deleted.

An example of the file; \`orc export\` writes one for what exists:
  automations:
    nightly-report:
      command: [python3, /srv/report.py]
      timeout: 10m
    forward:
      url: https://example.com/hook
      attempts: 5
      schema: forward.schema.json
    fix:
      agent: opencode acp
      promptFile: fix.md

Its fields are the options of \`orc automations create\` and \`set\`. A payload schema is written out or is the path of its file,
relative to this one, as is promptFile; \`orc export\` writes both out. With this schema, editors complete and check them:
  ${schemaPath}`,
      exitCodes:
        '0 the file is applied, or valid with --dry-run, 1 the file is invalid or a step failed, 2 usage error',
      examples: [
        'orc apply -f automations.yaml --dry-run',
        'orc apply -f automations.yaml --prune --keys-dir keys',
      ],
    })
    .action(async (options: ApplyOptions) => {
      const { placeOf, readAutomationFile } = await import('./automation-file.ts');
      const name = options.file === '-' ? 'standard input' : options.file;
      const folder = resolve(context.directory, options.file === '-' ? '.' : dirname(options.file));
      const content = await contentOf(options.file, context);
      const written = readAutomationFile(content, name);
      const place = (slug: string, field: string) => placeOf(content, name, slug, field);
      const entries = await withFiles(written, name, place, folder);
      await withStore(context, (store) => apply(entries, store, options, context));
    });

  const exporting = new OrcCommand('export')
    .description('print the existing automations as a file for `orc apply`')
    .option('--json', 'print JSON, which `orc apply` reads too')
    .moreHelp({
      notes: `It has no API keys and no signing secrets, but it has the values of --env: protect the file accordingly.`,
      examples: ['orc export > automations.yaml'],
    })
    .action(async ({ json }: { json?: boolean }) => {
      const automations = await withStore(context, (store) => store.automations.list());
      const { entriesOf, writeAutomationFile } = await import('../ops/automation-yaml.ts');
      if (json) output.json({ automations: entriesOf(automations) });
      else output.out(writeAutomationFile(automations));
    });

  return [applying, exporting];
}

async function apply(
  entries: ReadonlyMap<string, AutomationEntry>,
  store: Store,
  options: ApplyOptions,
  context: CommandContext,
): Promise<void> {
  const { output } = context;
  const { prune = false, dryRun, yes, json } = options;
  const existing = await store.automations.list();
  const plan = planOf(entries, existing, prune);
  const kept = existing.filter(({ slug }) => !plan.some((step) => step.slug === slug)).length;
  if (!json) showPlan(plan, kept, output);
  const isDone = plan.every(({ change }) => change === 'unchanged');
  if (dryRun || isDone) {
    if (json) return output.json({ applied: false, plan: plan.map(forPrograms), secrets: [] });
    return output.line(isDone ? 'There is nothing to change.' : 'This was a dry run: nothing was changed.');
  }
  if (!yes && !json && !(await askToContinue(context))) throw new CommandError('Nothing was changed.');
  const keysDir = options.keysDir === undefined ? undefined : resolve(context.directory, options.keysDir);
  await carryOut(plan, store, { keysDir, json }, output);
  if (!json) output.line(summarise(plan));
}

async function contentOf(file: string, { stdin, directory }: CommandContext): Promise<string> {
  if (file === '-') return text(stdin());
  try {
    return await readFile(resolve(directory, file), 'utf8');
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${(error as Error).message}.`, { cause: error });
  }
}

function showPlan(plan: readonly Step[], kept: number, output: Output): void {
  if (plan.length > 0) {
    output.table(['PLAN', 'AUTOMATION', 'WHAT'], plan.flatMap(describe));
    output.line();
  }
  if (kept > 0) output.line(`Not in the file, kept without --prune: ${kept}.`);
}

function describe(step: Step): string[][] {
  const { change, slug } = step;
  if (step.change === 'create') {
    return [[change, slug, shown(decisiveValue(masked(definitionOf(slug, step.entry))))]];
  }
  if (step.change === 'delete') return [[change, slug, 'its key becomes invalid; its runs stay readable']];
  if (step.change === 'unchanged') return [[change, slug]];
  return step.fields.map((field, index) => [
    index === 0 ? change : '',
    index === 0 ? slug : '',
    describeChange(field),
  ]);
}

/** Asks the user at a terminal; a script is not asked. */
async function askToContinue({ stdin, stdout }: CommandContext): Promise<boolean> {
  const input = stdin();
  if (!input.isTTY || !stdout.isTTY) return true;
  const terminal = createInterface({ input, output: stdout });
  try {
    return /^y(es)?$/i.test((await terminal.question('Carry out this plan? [y/N] ')).trim());
  } finally {
    terminal.close();
  }
}

function summarise(plan: readonly Step[]): string {
  const words = { create: 'created', change: 'changed', delete: 'deleted', unchanged: 'unchanged' } as const;
  const counts = Object.entries(words).map(([change, word]) => {
    const number = plan.filter((step) => step.change === change).length;
    return number === 0 ? [] : [`${number} ${word}`];
  });
  return `${counts.flat().join(', ')}.`;
}
