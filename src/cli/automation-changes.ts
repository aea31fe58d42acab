import type { Automation, AutomationDefinition } from '../core/automation.ts';
import {
  ACTION_FIELDS,
  type AutomationEntry,
  changedEntry,
  definitionOf,
  entryOf,
  isMap,
} from '../core/automation-entry.ts';
import { differences, type FieldChange } from '../core/field-changes.ts';
import type { Store } from '../store/store.ts';
import {
  AUTOMATION_OPTIONS,
  type AutomationOptions,
  checkEntry,
  fieldsFrom,
  RepeatedOption,
} from './automation-options.ts';
import { CommandError, UsageError } from './output.ts';

/** How often a change is tried that meets changes of others. */
const MAX_TRIES = 20;

/** What `orc automations set` is asked to change. */
export interface Changes {
  /** Fields with their new values. */
  fields: AutomationEntry;
  /** Names of options, or of one part of a repeated option such as `env.TOKEN`. */
  unset: readonly string[];
}

/** @throws UsageError when nothing is to be changed, or an option cannot be unset */
export function changesFrom(
  command: readonly string[],
  options: AutomationOptions,
  unset: readonly string[],
  directory: string,
): Changes {
  const fields = fieldsFrom(command, options, directory);
  for (const name of unset) optionToUnset(name);
  if (Object.keys(fields).length === 0 && unset.length === 0) {
    throw new UsageError('Say what to change, such as --timeout 5m or --unset rate.');
  }
  return { fields, unset };
}

/** The names that `--unset` takes, apart from parts such as `env.TOKEN`. Without its URL, an automation would do nothing. */
export const UNSET_NAMES: readonly string[] = AUTOMATION_OPTIONS.map((option) => option.name()).filter(
  (name) => !ACTION_FIELDS.includes(name),
);

/**
 * Changes an automation; what is not named stays. A change by somebody else at the same time is kept, too: this one is then made again
 * on top of it.
 *
 * @returns what changed, and the signing secret if one was issued; undefined when there is no such automation
 * @throws UsageError when the automation would be invalid
 */
export async function changeAutomation(
  store: Store,
  slug: string,
  changes: Changes,
): Promise<{ changed: FieldChange[]; signingSecret?: string } | undefined> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const stored = await store.automations.get(slug);
    if (!stored) return undefined;
    const { signingSecret: _, ...seen } = stored;
    const definition = changedDefinition(seen, changes);
    const changed = differences(seen, definition);
    if (changed.length === 0) return { changed };
    const replaced = await store.automations.replace(seen, definition);
    if (replaced.status === 'replaced') {
      const { signingSecret } = replaced;
      return { changed, ...(signingSecret !== undefined && { signingSecret }) };
    }
  }
  throw new CommandError(`Others keep changing ${slug}; it was left unchanged. Run the command again.`);
}

function changedDefinition(seen: Automation, { fields, unset }: Changes): AutomationDefinition {
  const { slug } = seen;
  const before = unset.reduce<AutomationEntry>((entry, name) => without(slug, entry, name), entryOf(seen));
  const added = AUTOMATION_OPTIONS.filter((option) => option instanceof RepeatedOption)
    .map((option) => option.attributeName())
    .filter((field) => fields[field] !== undefined && before[field] !== undefined)
    .map((field) => [field, together(before[field], fields[field])]);
  // What belongs to an action of another type is not taken over.
  const entry = changedEntry(before, { ...fields, ...Object.fromEntries(added) });
  checkEntry(slug, entry);
  return definitionOf(slug, entry);
}

/** The values of a repeated option are added to those that are there. */
function together(before: unknown, added: unknown): unknown {
  return isMap(added) ? { ...(before as object), ...added } : [...new Set([before, added].flat())];
}

function without(slug: string, entry: AutomationEntry, name: string): AutomationEntry {
  const { field, part } = optionToUnset(name);
  const { [field]: value, ...others } = entry;
  if (part === undefined) return others;
  const parts = isMap(value) ? Object.keys(value) : [value ?? []].flat();
  if (!parts.includes(part)) {
    throw new CommandError(`The automation ${slug} has no ${name}. See: orc automations show ${slug}`);
  }
  const left = isMap(value)
    ? Object.fromEntries(Object.entries(value).filter(([key]) => key !== part))
    : [value].flat().filter((each) => each !== part);
  return Object.keys(left).length === 0 ? others : { ...others, [field]: left };
}

/** @throws UsageError */
function optionToUnset(name: string): { field: string; part?: string } {
  const dot = name.indexOf('.');
  const [optionName, part] = dot < 0 ? [name] : [name.slice(0, dot), name.slice(dot + 1)];
  const option = AUTOMATION_OPTIONS.find(
    (each) => each.name() === optionName && UNSET_NAMES.includes(optionName),
  );
  if (!option || (part !== undefined && !(option instanceof RepeatedOption))) {
    throw new UsageError(
      `--unset cannot take '${name}'. Use one of: ${UNSET_NAMES.join(', ')}, or a part such as env.TOKEN.`,
    );
  }
  const field = option.name() === 'disabled' ? 'enabled' : option.attributeName();
  return { field, ...(part !== undefined && { part }) };
}
