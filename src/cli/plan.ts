import type { Automation } from '../core/automation.ts';
import { maskUrl, maskUrls } from '../core/masked-url.ts';
import { type AutomationEntry, definitionOf, entryOf } from './automation-entry.ts';

/** What a field is, and what it is to become; neither is told of what may be a secret: variables, and parts of URLs. */
export interface FieldChange {
  field: string;
  from?: unknown;
  to?: unknown;
}

/** What `orc apply` does with one automation. */
export type Step =
  | { change: 'create'; slug: string; entry: AutomationEntry }
  | { change: 'change'; slug: string; entry: AutomationEntry; seen: Automation; fields: FieldChange[] }
  | { change: 'unchanged'; slug: string }
  | { change: 'delete'; slug: string };

/**
 * What it takes to get from the automations that exist to those that a file names.
 *
 * @param prune whether automations that the file does not name are to be deleted
 */
export function planOf(
  entries: ReadonlyMap<string, AutomationEntry>,
  existing: readonly Automation[],
  prune: boolean,
): Step[] {
  const stored = new Map(existing.map((automation) => [automation.slug, automation]));
  const steps: Step[] = [...entries].map(([slug, entry]) => {
    const seen = stored.get(slug);
    if (!seen) return { change: 'create', slug, entry };
    // Both are written the same way first: 60s is no change of 1m.
    const fields = differences(entryOf(seen), entryOf(definitionOf(slug, entry)));
    return fields.length === 0
      ? { change: 'unchanged', slug }
      : { change: 'change', slug, entry, seen, fields };
  });
  if (!prune) return steps;
  const deletions = existing.filter(({ slug }) => !entries.has(slug));
  return [...steps, ...deletions.map(({ slug }): Step => ({ change: 'delete', slug }))];
}

function differences(before: AutomationEntry, after: AutomationEntry): FieldChange[] {
  const { env: variablesBefore = {}, ...from } = before;
  const { env: variablesAfter = {}, ...to } = after;
  const variables = differingKeys(variablesBefore, variablesAfter).map((name) => ({ field: `env.${name}` }));
  const fields = differingKeys(from, to).map((field) => {
    const change = { from: shownValue(from, field), to: shownValue(to, field) };
    return textOf(change, 'from') === textOf(change, 'to') ? { field } : { field, ...change };
  });
  return [...fields, ...variables];
}

function differingKeys(before: object, after: object): string[] {
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].filter((key) => textOf(before, key) !== textOf(after, key));
}

function textOf(values: object, key: string): string | undefined {
  return JSON.stringify((values as Record<string, unknown>)[key]);
}

/** A field without the secrets of URLs. */
function shownValue(entry: object, field: string): unknown {
  const value = (entry as Record<string, unknown>)[field];
  if (Array.isArray(value)) return value.map((word) => maskUrls(String(word)));
  return field === 'url' && typeof value === 'string' ? maskUrl(value) : value;
}

/** A step as it is printed for programs: without the entry, which holds values that may be secrets. */
export function forPrograms(step: Step) {
  const { change, slug } = step;
  return { slug, change, ...(step.change === 'change' && { fields: step.fields }) };
}
