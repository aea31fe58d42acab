import type { Automation } from '../core/automation.ts';
import { type AutomationEntry, definitionOf } from '../core/automation-entry.ts';
import { differences, type FieldChange } from '../core/field-changes.ts';

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
    const fields = differences(seen, definitionOf(slug, entry));
    return fields.length === 0
      ? { change: 'unchanged', slug }
      : { change: 'change', slug, entry, seen, fields };
  });
  if (!prune) return steps;
  const deletions = existing.filter(({ slug }) => !entries.has(slug));
  return [...steps, ...deletions.map(({ slug }): Step => ({ change: 'delete', slug }))];
}

/** A step as JSON: without the entry, whose values may be secrets. */
export function forPrograms(step: Step) {
  const { change, slug } = step;
  return { slug, change, ...(step.change === 'change' && { fields: step.fields }) };
}
