import { actionTypeOf } from '../core/actions/actions.ts';
import { type Automation, type AutomationDefinition, MAX_GRACE_MS } from '../core/automation.ts';
import { type AutomationEntry, definitionOf, didYouMean, masked } from '../core/automation-entry.ts';
import { curlLine } from '../core/curl-line.ts';
import { parseDuration } from '../core/durations.ts';
import { describeChange } from '../core/field-changes.ts';
import { automationFacts, automationState } from '../ops/automation-facts.ts';
import type { Store } from '../store/store.ts';
import { changeAutomation, changesFrom } from './automation-changes.ts';
import { AUTOMATION_OPTIONS, type AutomationOptions, checkEntry, fieldsFrom } from './automation-options.ts';
import { type CommandContext, originFor, withStore } from './context.ts';
import { withPrompt, withSchema } from './entry-files.ts';
import { OrcCommand } from './orc-command.ts';
import { CommandError, pairs, UsageError } from './output.ts';

const DEFAULT_GRACE = '24h';

const MASKED = 'Possible secrets in URLs are shown as ***; `orc export` prints them in full.';

interface CreateOptions extends AutomationOptions {
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
    .option('-q, --quiet', 'print only the key')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The command gets the payload on its standard input. Of the worker's environment it gets PATH, HOME, LANG, TZ and the
variables of --pass-env. --url gets the payload in a signed POST, --on-end and --on-failure get a signed event; the signing
secret is shown only once, too.

With --agent, an AI agent does what --prompt says, in a checkout of --repo, and --check decides whether the run has
succeeded. See docs/agents.md.

With --schema, a payload that does not fit is answered 400, with the place and the rule. The schema is stored: change the file,
then run \`orc automations set <slug> --schema <file>\`. Formats are not checked; patterns are RE2's.`,
      examples: [
        'orc automations create nightly-report -- python3 /srv/report.py --format pdf',
        'orc automations create deploy --concurrency 1 --on-worker-loss fail --cwd /srv/app -- ./deploy.sh',
        "orc automations create fix --agent 'opencode acp' --repo https://github.com/acme/shop.git --prompt-file fix.md --check 'npm test'",
        'orc automations create forward --url https://example.com/hook --attempts 5',
        'orc automations create release --schema release.schema.json --cwd "$PWD" -- ./release.sh',
        'KEY=$(orc automations create ping --quiet -- true)',
      ],
    })
    .action(async (slug: string, command: string[], options: CreateOptions) => {
      const entry = fieldsFrom(command, options, context.directory);
      checkEntry(slug, entry);
      const definition = definitionOf(slug, await fileOptions(entry, context));
      const created = await withStore(context, ({ automations }) => automations.create(definition));
      if (created.status === 'exists') {
        throw new CommandError(
          `The automation ${slug} already exists and was not changed. Change it with \`orc automations set ${slug}\`, or choose another slug.`,
        );
      }
      const { automation, apiKey, signingSecret } = created;
      output.err(warningOf(automation));
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
      output.line(`  ${curlLine(origin, slug, apiKey, examplePayload(definition))}`);
    });
  for (const option of AUTOMATION_OPTIONS) create.addOption(option);

  const set = group
    .command('set')
    .description('change an automation; its key, its runs and all other options stay')
    .argument('<slug>', 'the automation')
    .argument('[command...]', 'after --: the program to run from now on and its arguments')
    .option(
      '--unset <option>',
      'give an option its default, such as rate, or remove a part of one, such as env.TOKEN; may be repeated',
      (name, before: string[] = []) => [...before, name],
    )
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The next attempt has the new action, time limit and variables; the next accepted run the new attempts, concurrency and rate.
--env and --pass-env add variables; with --unset env they replace all. With --url, --agent or a command after --, the action
becomes another, and the options of the old one are removed.`,
      examples: [
        'orc automations set deploy --timeout 5m --concurrency 1',
        'orc automations set deploy --unset rate --unset env.TOKEN',
        'orc automations set nightly-report -- python3 /srv/report.py --format html',
      ],
    })
    .action(
      async (
        slug: string,
        command: string[],
        options: AutomationOptions & { unset?: string[]; json?: boolean },
      ) => {
        const { fields, unset } = changesFrom(command, options, options.unset ?? [], context.directory);
        const changes = { fields: await fileOptions(fields, context), unset };
        const { changed, signingSecret } = await withStore(context, async (store) => {
          const done = await changeAutomation(store, slug, changes);
          if (!done) throw await unknownSlug(store, slug);
          return done;
        });
        if (options.json) return output.json({ slug, fields: changed, signingSecret });
        if (changed.length === 0) return output.line(`The automation ${slug} is like that already.`);
        output.line(`The automation ${slug} is changed:`);
        for (const change of changed) output.line(`  ${describeChange(change)}`);
        if (signingSecret === undefined) return;
        output.line();
        output.line(`  Signing secret  ${output.style('bold', signingSecret)}`);
        output.line();
        output.line('Save it now: it is never shown again.');
      },
    );
  for (const option of AUTOMATION_OPTIONS) set.addOption(option);

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
      const rows = automations.map((automation) => [
        automation.slug,
        automationState(automation),
        actionTypeOf(automation.action).describe(automation.action)[0][1],
        automation.name,
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
      for (const line of pairs(automationFacts(automation, lastSuccess, rejections))) output.line(line);
    });

  for (const [verb, enabled] of [
    ['enable', true],
    ['disable', false],
  ] as const) {
    group
      .command(verb)
      .description(
        enabled
          ? 'accept triggers again'
          : 'reject triggers; a waiting run is cancelled when a worker takes it',
      )
      .argument('<slug>', 'the automation')
      .option('--json', 'print JSON')
      .moreHelp({ examples: [`orc automations ${verb} nightly-report`] })
      .action(async (slug: string, { json }: { json?: boolean }) => {
        const open = await withStore(context, async (store) => {
          if (!(await store.automations.setEnabled(slug, enabled))) throw await unknownSlug(store, slug);
          return store.index.countOpen([slug]);
        });
        if (json) return output.json({ slug, enabled });
        output.line(`The automation ${slug} is ${verb}d.`);
        if (enabled || open[0] === 0) return;
        output.line(`${open[0]} of its runs have not ended. To cancel those that wait at once:`);
        output.line(`orc runs cancel --automation ${slug} --status queued`);
      });
  }

  for (const [verb, paused] of [
    ['pause', true],
    ['resume', false],
  ] as const) {
    group
      .command(verb)
      .description(
        paused
          ? 'accept triggers but start no runs; executing runs go on'
          : 'start its runs again, in the order in which they were accepted',
      )
      .argument('<slug>', 'the automation')
      .option('--json', 'print JSON')
      .moreHelp({
        ...(paused && {
          notes: `Callers get their 202, and the runs wait, as do further attempts at runs that failed. They count for MAX_QUEUED_RUNS.
\`orc automations disable\` rejects triggers instead. A file for \`orc apply\` does not say whether an automation is paused.`,
        }),
        examples: [`orc automations ${verb} nightly-report`],
      })
      .action(async (slug: string, { json }: { json?: boolean }) => {
        const waiting = await withStore(context, async (store) => {
          const automationId = await store.automations.setPaused(slug, paused);
          if (automationId === undefined) throw await unknownSlug(store, slug);
          const waits = await waitingRuns(store, slug);
          if (!paused) await store.lanes.release({ automationId, slug });
          return waits;
        });
        if (json) return output.json({ slug, paused, waiting });
        output.line(
          paused
            ? `The automation ${slug} is paused: its runs are accepted and wait. To start them: orc automations resume ${slug}`
            : `The automation ${slug} is resumed: ${waiting} run${waiting === 1 ? '' : 's'} waited.`,
        );
      });
  }

  group
    .command('delete')
    .description('delete an automation, its keys and its unsent events; its runs stay readable')
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
      const graceMs = parseGrace(options.grace);
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

  group
    .command('rotate-secret')
    .description('issue a new signing secret; for a while, requests are signed with both')
    .argument('<slug>', 'the automation')
    .option('--grace <duration>', 'how long the old secret signs, too; 0 ends it at once', DEFAULT_GRACE)
    .option('-q, --quiet', 'print only the new secret')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `Deliveries to a URL and events are signed with it. The new secret is shown only once. During the grace period,
receivers may verify with either; an older secret that is still in its grace period ends at once.`,
      examples: [
        'orc automations rotate-secret deploy',
        'SECRET=$(orc automations rotate-secret deploy --grace 1h --quiet)',
      ],
    })
    .action(async (slug: string, options: { grace: string; quiet?: boolean; json?: boolean }) => {
      const graceMs = parseGrace(options.grace);
      const { signingSecret, previousSecretEndsAt } = await withStore(context, async (store) => {
        const rotated = await store.automations.rotateSecret(slug, graceMs);
        if (rotated.status === 'not_found') throw await unknownSlug(store, slug);
        if (rotated.status === 'unsigned') throw new CommandError(noSecret(slug));
        return rotated;
      });
      if (options.json) return output.json({ slug, signingSecret, previousSecretEndsAt });
      if (options.quiet) return output.line(signingSecret);
      output.line(`The automation ${slug} has a new signing secret:`);
      output.line();
      output.line(`  ${output.style('bold', signingSecret)}`);
      output.line();
      output.line('Save it now: it is never shown again.');
      output.line(
        graceMs === 0
          ? 'Nothing is signed with the old secret any more.'
          : `Until ${previousSecretEndsAt.toISOString()}, what is sent is signed with the old secret, too.`,
      );
    });

  return group;
}

/** @returns milliseconds */
function parseGrace(grace: string): number {
  const graceMs = parseDuration(grace);
  if (graceMs > MAX_GRACE_MS) throw new UsageError('--grace must be at most 365d.');
  return graceMs;
}

function noSecret(slug: string): string {
  return `The automation ${slug} has no signing secret, because it sends nothing. It gets one with --url, --on-end or --on-failure.`;
}

/** An entry with what is in the files that `--schema` and `--prompt-file` name. @throws CommandError */
async function fileOptions(entry: AutomationEntry, { directory }: CommandContext): Promise<AutomationEntry> {
  const withRead = await withSchema(entry, directory).catch(failFor('--schema'));
  return withPrompt(withRead, directory).catch(failFor('--prompt-file'));
}

function failFor(option: string) {
  return ({ message, cause }: CommandError): never => {
    throw new CommandError(`${option} ${message}`, { cause });
  };
}

/** What the printed line sends: a schema may refuse an empty object. */
function examplePayload({ schema }: AutomationDefinition): string {
  return schema === undefined ? '{}' : '@payload.json';
}

/** One line about a command that will not be found; empty if there is nothing to warn of. */
function warningOf({ slug, action }: Automation): string {
  if (action.type !== 'command' || action.cwd !== undefined) return '';
  const [program = ''] = action.argv;
  if (!program.includes('/') || program.startsWith('/')) return '';
  return `orc: Warning: ${program} will not be found: without --cwd, the command runs in an empty working directory. Use an absolute path, or: orc automations set ${slug} --cwd DIR\n`;
}

/** The error for an unknown slug; it suggests a similar one. */
export async function unknownSlug(store: Store, slug: string): Promise<CommandError> {
  const suggestion = didYouMean(slug, await store.automations.slugs());
  return new CommandError(`There is no automation ${JSON.stringify(slug)}.${suggestion}`, {
    error: 'not_found',
    hint: 'All of them: orc automations list',
  });
}

/** How many runs of an automation wait in its lane. */
async function waitingRuns(store: Store, slug: string): Promise<number> {
  const parked = await store.lanes.parked();
  return parked.filter((lane) => lane.slug === slug).reduce((sum, { count }) => sum + count, 0);
}
