import { actionTypeOf } from '../core/actions/actions.ts';
import { type Automation, isSlug } from '../core/automation.ts';
import type { Rejection } from '../store/rejections.ts';
import type { Store } from '../store/store.ts';
import { ACTION_OPTIONS, SAY_WHAT_IT_DOES } from './action-options.ts';
import {
  type AutomationEntry,
  definitionOf,
  didYouMean,
  masked,
  problemsOfEntry,
  WHAT_A_SLUG_IS,
} from './automation-entry.ts';
import { type CommandContext, originFor, withStore } from './context.ts';
import { formatDuration, formatRate, parseDuration } from './durations.ts';
import { OrcCommand } from './orc-command.ts';
import { CommandError, pairs, UsageError } from './output.ts';

const DEFAULT_GRACE = '24h';

/** Longest grace period of an old key, in milliseconds. */
const MAX_GRACE_MS = 365 * 86_400_000;

const MASKED = 'Possible secrets in URLs are shown as ***; `orc export` prints them in full.';

/** The others have the names of an entry's fields. */
interface CreateOptions extends Readonly<Record<string, unknown>> {
  disabled?: boolean;
  quiet?: boolean;
  json?: boolean;
}

/** `orc automations …`: create and manage automations and their keys. */
export function automationsCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  const group = new OrcCommand('automations').description('create and manage automations and their keys');

  const create = group
    .command('create')
    .description('create an automation and issue its key, which is shown only once')
    .argument('<slug>', 'its name in the URL: lower-case words joined by hyphens')
    .argument('[command...]', 'after --: the program to run and its arguments; no shell interprets them')
    .option('--name <text>', 'a name for people')
    .option('--disabled', 'create it disabled')
    .option('--timeout <duration>', 'time limit of one attempt, such as 10m (default: RUN_TIMEOUT_MS)')
    .option('--attempts <number>', 'maximum number of attempts at a failing run', numberOr, 1)
    .option(
      '--concurrency <number>',
      'maximum number of runs that execute at the same time (default: no limit)',
      numberOr,
    )
    .option('--rate <rate>', 'maximum rate of accepted runs, such as 60/m (default: no limit)')
    .option('--keep-runs <number>', 'number of ended runs to keep (default: RUN_RETENTION_COUNT)', numberOr)
    .option('--on-worker-loss <choice>', 'what to do with a run whose worker dies: rerun or fail', 'rerun')
    .option('-q, --quiet', 'print only the key')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The command gets the payload on its standard input. Of the worker's environment it gets PATH, HOME, LANG, TZ and the
variables of --pass-env. A URL gets the payload in a signed POST; the signing secret is shown only once, too.`,
      examples: [
        'orc automations create nightly-report -- python3 /srv/report.py --format pdf',
        'orc automations create deploy --concurrency 1 --on-worker-loss fail --cwd /srv/app -- ./deploy.sh',
        'orc automations create forward --url https://example.com/hook --attempts 5',
        'KEY=$(orc automations create ping --quiet -- true)',
      ],
    })
    .action(async (slug: string, command: string[], options: CreateOptions) => {
      const definition = definitionOf(slug, entryFrom(slug, command, options));
      const created = await withStore(context, ({ automations }) => automations.create(definition));
      if (created.status === 'exists') {
        throw new CommandError(
          `The automation ${slug} already exists and was not changed. Choose another slug, or delete it first: orc automations delete ${slug}`,
        );
      }
      const { automation, apiKey, signingSecret } = created;
      if (options.json) return output.json({ automation: masked(automation), apiKey, signingSecret });
      if (options.quiet) {
        output.line(apiKey);
        if (signingSecret !== undefined) output.err(`signing secret: ${signingSecret}\n`);
        return;
      }
      const origin = await originFor(context);
      output.line(`The automation ${slug} is created${definition.enabled ? '' : ', disabled'}.`);
      output.line();
      const secrets = pairs([
        ['API key', output.style('bold', apiKey)],
        ['Signing secret', signingSecret && output.style('bold', signingSecret)],
      ]);
      for (const line of secrets) output.line(`  ${line}`);
      output.line();
      output.line('Save this now: it is never shown again. Start a run with');
      output.line();
      output.line(`  ${curlLine(origin, slug, apiKey)}`);
    });
  for (const option of ACTION_OPTIONS) create.addOption(option);

  group
    .command('list')
    .description('list all automations')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: MASKED,
      examples: ['orc automations list', "orc automations list --json | jq -r '.[].slug'"],
    })
    .action(async ({ json }: { json?: boolean }) => {
      const automations = await withStore(context, (store) => store.automations.list());
      if (json) return output.json(automations.map(masked));
      if (automations.length === 0) {
        return output.line(
          'There are no automations. Create one: orc automations create <slug> -- <command>',
        );
      }
      const rows = automations.map(({ slug, enabled, action, name }) => [
        slug,
        enabled ? 'enabled' : 'disabled',
        actionTypeOf(action).describe(action)[0][1],
        name,
      ]);
      output.table(['SLUG', 'STATE', 'ACTION', 'NAME'], rows);
    });

  group
    .command('show')
    .description(
      'show one automation: its action, limits, last success, rejected requests and the age of its keys',
    )
    .argument('<slug>', 'the automation')
    .option('--json', 'print JSON')
    .moreHelp({ notes: MASKED, examples: ['orc automations show nightly-report'] })
    .action(async (slug: string, { json }: { json?: boolean }) => {
      const { lastSuccess, rejections, ...automation } = await withStore(context, async (store) => {
        const found = await store.automations.get(slug);
        if (!found) throw await unknownSlug(store, slug);
        const { signingSecret: _, ...shown } = found;
        const [successes, rejections] = await Promise.all([
          store.index.lastSuccesses(),
          store.rejections.read(slug),
        ]);
        return { ...shown, lastSuccess: successes.get(slug), rejections };
      });
      if (json) return output.json({ ...masked(automation), lastSuccess, rejections });
      for (const line of describe(automation, lastSuccess, rejections)) output.line(line);
    });

  for (const [verb, enabled] of [
    ['enable', true],
    ['disable', false],
  ] as const) {
    group
      .command(verb)
      .description(enabled ? 'accept triggers again' : 'reject triggers, and cancel the runs that still wait')
      .argument('<slug>', 'the automation')
      .option('--json', 'print JSON')
      .moreHelp({ examples: [`orc automations ${verb} nightly-report`] })
      .action(async (slug: string, { json }: { json?: boolean }) => {
        await withStore(context, async (store) => {
          if (!(await store.automations.setEnabled(slug, enabled))) throw await unknownSlug(store, slug);
        });
        if (json) return output.json({ slug, enabled });
        output.line(`The automation ${slug} is ${verb}d.`);
      });
  }

  group
    .command('delete')
    .description('delete an automation and its keys; its runs stay readable')
    .argument('<slug>', 'the automation')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `Its waiting runs are not executed. A new automation may use the slug, with a new key.`,
      examples: ['orc automations delete nightly-report'],
    })
    .action(async (slug: string, { json }: { json?: boolean }) => {
      await withStore(context, async (store) => {
        if (!(await store.automations.delete(slug))) throw await unknownSlug(store, slug);
      });
      if (json) return output.json({ slug, deleted: true });
      output.line(`The automation ${slug} is deleted.`);
    });

  group
    .command('rotate-key')
    .description('issue a new key; the old one stays valid for a while')
    .argument('<slug>', 'the automation')
    .option('--grace <duration>', 'how long the old key stays valid; 0 revokes it at once', DEFAULT_GRACE)
    .option('-q, --quiet', 'print only the new key')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The new key is shown only once. An older key that is still in its grace period becomes invalid at once.`,
      examples: [
        'orc automations rotate-key deploy',
        'KEY=$(orc automations rotate-key deploy --grace 0 --quiet)',
      ],
    })
    .action(async (slug: string, options: { grace: string; quiet?: boolean; json?: boolean }) => {
      const graceMs = parseDuration(options.grace);
      if (graceMs > MAX_GRACE_MS) throw new UsageError('--grace must be at most 365d.');
      const { apiKey, previousKeyEndsAt } = await withStore(context, async (store) => {
        const rotated = await store.automations.rotateKey(slug, graceMs);
        if (rotated.status === 'not_found') throw await unknownSlug(store, slug);
        return rotated;
      });
      if (options.json) return output.json({ slug, apiKey, previousKeyEndsAt });
      if (options.quiet) return output.line(apiKey);
      output.line(`The automation ${slug} has a new key:`);
      output.line();
      output.line(`  ${output.style('bold', apiKey)}`);
      output.line();
      output.line('Save it now: it is never shown again.');
      output.line(
        graceMs === 0
          ? 'The old key is no longer valid.'
          : `The old key stays valid until ${previousKeyEndsAt.toISOString()}.`,
      );
    });

  return group;
}

/** A curl command that starts a run when it is pasted into a shell. */
export function curlLine(origin: string, slug: string, apiKey: string, payload = '{}'): string {
  return `curl -X POST ${origin}/orc/api/automation-triggers/${slug} -H 'x-api-key: ${apiKey}' -H 'content-type: application/json' -d '${payload}'`;
}

/** The error for an unknown slug; it suggests a similar one. */
export async function unknownSlug(store: Store, slug: string): Promise<CommandError> {
  const suggestion = didYouMean(slug, await store.automations.slugs());
  return new CommandError(
    `There is no automation ${JSON.stringify(slug)}.${suggestion} All of them: orc automations list`,
  );
}

/** The options in the words of an entry. */
function entryFrom(slug: string, command: string[], options: CreateOptions): AutomationEntry {
  if (!isSlug(slug)) throw new UsageError(`'${slug}' is not a slug. ${WHAT_A_SLUG_IS}`);
  const { disabled, quiet: _, json: __, ...fields } = options;
  const entry = { ...fields, ...(command.length > 0 && { command }), ...(disabled && { enabled: false }) };
  const problems = problemsOfEntry(entry).map(({ field, problem }) =>
    field === undefined ? SAY_WHAT_IT_DOES : `${optionOf(field)} ${problem}.`,
  );
  if (problems.length > 0) throw new UsageError(problems.join('\n'));
  return entry;
}

/** What cannot be a number stays the text that it is, to be named as wrong. */
function numberOr(text: string): number | string {
  return /^\d{1,9}$/.test(text) ? Number(text) : text;
}

/** `keepRuns` is `--keep-runs`. */
function optionOf(field: string): string {
  return `--${field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

function describe(automation: Automation, lastSuccess: Date | undefined, rejections: Rejection[]): string[] {
  const { action, timeoutMs, rate, concurrency, previousKeyEndsAt } = automation;
  return pairs([
    ['slug', automation.slug],
    ['name', automation.name || undefined],
    ['state', automation.enabled ? 'enabled' : 'disabled'],
    ...actionTypeOf(action).describe(action),
    ['timeout', timeoutMs === undefined ? 'as RUN_TIMEOUT_MS says' : formatDuration(timeoutMs)],
    ['attempts', String(automation.attempts)],
    ['concurrency', concurrency === undefined ? 'no limit' : String(concurrency)],
    ['rate', rate ? formatRate(rate) : 'no limit'],
    ['kept runs', automation.keepRuns === undefined ? 'RUN_RETENTION_COUNT' : String(automation.keepRuns)],
    ['worker loss', automation.onWorkerLoss],
    ['last success', lastSuccess?.toISOString() ?? 'never'],
    ...describeRejections(rejections),
    ['created', automation.createdAt.toISOString()],
    ['key issued', automation.keyCreatedAt.toISOString()],
    ['old key ends', previousKeyEndsAt?.toISOString()],
  ]);
}

/** One line per error, the latest first. */
function describeRejections(rejections: Rejection[]): [string, string][] {
  if (rejections.length === 0) return [['rejected', 'no request']];
  return rejections.map(({ error, count, lastAt }, index) => [
    index === 0 ? 'rejected' : '',
    `${count} ${error}, last at ${lastAt.toISOString()}`,
  ]);
}
