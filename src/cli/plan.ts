import type { Automation, AutomationDefinition } from '../core/automation.ts';
import { type AutomationEntry, definitionOf, entryOf, isMap, masked } from './automation-entry.ts';

/** The old and the new value of a field; both are left out where they may be secrets: variables, and parts of URLs. */
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
 * The steps from the existing automations to those of a file.
 *
 * @param prune whether to delete automations that the file does not name
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
    const fields = differences(seen, definitionOf(slug, entry));
    return fields.length === 0
      ? { change: 'unchanged', slug }
      : { change: 'change', slug, entry, seen, fields };
  });
  if (!prune) return steps;
  const deletions = existing.filter(({ slug }) => !entries.has(slug));
  return [...steps, ...deletions.map(({ slug }): Step => ({ change: 'delete', slug }))];
}

function differences(before: AutomationDefinition, after: AutomationDefinition): FieldChange[] {
  const [from, to] = [entryOf(before), entryOf(after)];
  const [shownFrom, shownTo] = [entryOf(masked(before)), entryOf(masked(after))];
  const changed = differingKeys(from, to);
  const isMapField = (field: string) => isMap(from[field] ?? to[field]);
  const fields = changed
    .filter((field) => !isMapField(field))
    .map((field) => {
      const change = { from: shownFrom[field], to: shownTo[field] };
      return JSON.stringify(change.from) === JSON.stringify(change.to) ? { field } : { field, ...change };
    });
  const inMaps = changed
    .filter(isMapField)
    .flatMap((field) => differingKeys(from[field], to[field]).map((name) => ({ field: `${field}.${name}` })));
  return [...fields, ...inMaps];
}

function differingKeys(before: unknown, after: unknown): string[] {
  const [from, to] = [new Map(Object.entries(before ?? {})), new Map(Object.entries(after ?? {}))];
  const keys = new Set([...from.keys(), ...to.keys()]);
  return [...keys].filter((key) => JSON.stringify(from.get(key)) !== JSON.stringify(to.get(key)));
}

/** A step as JSON: without the entry, whose values may be secrets. */
export function forPrograms(step: Step) {
  const { change, slug } = step;
  return { slug, change, ...(step.change === 'change' && { fields: step.fields }) };
}
