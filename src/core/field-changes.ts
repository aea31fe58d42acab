import type { AutomationDefinition } from './automation.ts';
import { entryOf, isMap, masked } from './automation-entry.ts';

/** The old and the new value of a field; both are left out where they may be secrets: variables, and parts of URLs. */
export interface FieldChange {
  field: string;
  from?: unknown;
  to?: unknown;
}

/** The fields that differ; both definitions are written the same way first: 60s is no change of 1m. */
export function differences(before: AutomationDefinition, after: AutomationDefinition): FieldChange[] {
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

/** A change for people: `timeout: 10m → 5m`. */
export function describeChange({ field, from, to }: FieldChange): string {
  const isShown = from !== undefined || to !== undefined;
  return `${field}: ${isShown ? `${shown(from)} → ${shown(to)}` : 'another value'}`;
}

/** A value of a field. */
export function shown(value: unknown): string {
  if (value === undefined) return 'default';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** The fields of an automation that is created or deleted, in the form of {@link differences}. */
export function fieldsOf(definition: AutomationDefinition, side: 'from' | 'to'): FieldChange[] {
  return Object.entries(entryOf(masked(definition))).flatMap(([field, value]) => {
    if (isMap(value)) return Object.keys(value).map((name) => ({ field: `${field}.${name}` }));
    return [{ field, [side]: value }];
  });
}
