import { type Static, Type } from '@sinclair/typebox';
import { Errors } from '@sinclair/typebox/errors';
import { Value, ValuePointer } from '@sinclair/typebox/value';
import { closest, distance } from 'fastest-levenshtein';
import type { ActionType, FieldProblem } from './actions/action-type.ts';
import { ACTION_TYPES, type Action, actionTypeOf } from './actions/actions.ts';
import {
  type AutomationDefinition,
  MAX_ATTEMPTS,
  MAX_CONCURRENCY,
  MAX_KEPT_RUNS,
  MAX_SKIPPING_CONCURRENCY,
  MAX_TIMEOUT_MS,
  ON_WORKER_LOSS,
  SLUG_MAX_LENGTH,
  WHEN_BUSY,
} from './automation.ts';
import { formatRate, parseDuration, parseRate, writeDuration } from './durations.ts';
import { maskReceiverUrl } from './masked-url.ts';
import {
  problemsOfReceiverUrl,
  quotableUrl,
  RECEIVER_URL_PATTERN,
  WHAT_A_RECEIVER_URL_IS,
} from './receiver-url.ts';
import { EVENT_RECEIVERS } from './run-event.ts';

export const WHAT_A_SLUG_IS = `Use lower-case letters, digits and single hyphens between them, at most ${SLUG_MAX_LENGTH} characters, such as nightly-report.`;

/** The JSON Schema of a file of automations, from the package's folder. */
export const SCHEMA_FILE = 'openapi/automations.schema.json';

/** A name that differs in more letters than this from every known one is not a typo. */
const MAX_TYPOS = 3;

/** A value longer than this is not repeated in a message. */
const MAX_SHOWN_LENGTH = 40;

const TYPES = Object.values(ACTION_TYPES);

/** The fields of all automations, whatever they do. */
const commonFields = Type.Object({
  name: Type.String({ description: 'A name for people' }),
  enabled: Type.Boolean({ default: true, description: 'Whether it can be triggered' }),
  timeout: Type.String({
    pattern: '^\\d+(\\.\\d+)?(ms|s|m|h|d)$',
    description: 'Time limit of one attempt, such as 10m, at most 7d. Default: RUN_TIMEOUT_MS',
  }),
  attempts: Type.Integer({
    minimum: 1,
    maximum: MAX_ATTEMPTS,
    default: 1,
    description: 'Maximum number of attempts at a failing run',
  }),
  concurrency: Type.Integer({
    minimum: 1,
    maximum: MAX_CONCURRENCY,
    description: 'Maximum number of runs that execute at the same time. Default: no limit',
  }),
  whenBusy: Type.Union(
    WHEN_BUSY.map((choice) => Type.Literal(choice)),
    { default: 'queue', description: 'What to do with a run when as many execute as concurrency allows' },
  ),
  rate: Type.String({
    pattern: '^[1-9]\\d{0,8}/(s|m|h|d)$',
    description: 'Maximum rate of accepted runs, such as 60/m. Default: no limit',
  }),
  keepRuns: Type.Integer({
    minimum: 1,
    maximum: MAX_KEPT_RUNS,
    description: 'Number of ended runs to keep. Default: RUN_RETENTION_COUNT',
  }),
  onWorkerLoss: Type.Union(
    ON_WORKER_LOSS.map((choice) => Type.Literal(choice)),
    { default: 'rerun', description: 'What to do with a run whose worker dies' },
  ),
  onEnd: Type.String({
    pattern: RECEIVER_URL_PATTERN,
    description: 'Send an event to this URL when a run has ended, signed as Standard Webhooks describes',
  }),
  onFailure: Type.String({
    pattern: RECEIVER_URL_PATTERN,
    description: 'The same only when a run has failed or timed out',
  }),
  schema: Type.Union([Type.String({ minLength: 1 }), Type.Object({}, { additionalProperties: true })], {
    description:
      'JSON Schema 2020-12 for payloads, or the path of a file with one, relative to this file. Default: every JSON object is accepted',
  }),
});

/**
 * An automation as its operator writes it: as an entry of a file, or as the options of `orc automations create`. A missing
 * field has its default. Editors show the descriptions.
 */
export const AutomationEntrySchema = Type.Partial(
  Type.Object(Object.assign({}, ...TYPES.map(({ fields }) => fields), commonFields.properties)),
  { additionalProperties: false, oneOf: TYPES.map((type) => ({ required: [decisiveField(type)] })) },
);
export type AutomationEntry = Partial<Static<typeof commonFields>> & Readonly<Record<string, unknown>>;

/** The fields of every automation: {@link ACTION_TYPES} has those of each type of action. */
export const COMMON_FIELDS = commonFields.properties;

/** What a field must be. */
const EXPECTED: Readonly<Record<string, string>> = {
  name: 'text',
  enabled: 'true or false',
  ...Object.assign({}, ...TYPES.map(({ expected }) => expected)),
  timeout: 'a number with a unit, such as 500ms, 90s, 10m or 24h, longer than 0 and at most 7d',
  attempts: `a whole number from 1 to ${MAX_ATTEMPTS}`,
  concurrency: `a whole number from 1 to ${MAX_CONCURRENCY}`,
  whenBusy: WHEN_BUSY.join(' or '),
  rate: 'a number per s, m, h or d, such as 5/s, 60/m or 1000/d',
  keepRuns: `a whole number from 1 to ${MAX_KEPT_RUNS}`,
  onWorkerLoss: ON_WORKER_LOSS.join(' or '),
  onEnd: WHAT_A_RECEIVER_URL_IS,
  onFailure: WHAT_A_RECEIVER_URL_IS,
  schema: 'a JSON Schema, or the path of a file with one',
};

/** The fields that make an entry one of each type. */
export const ACTION_FIELDS = TYPES.map(decisiveField);

/** "a command, an agent or a url" */
const DECISIVE_FIELDS = TYPES.map((type) => aOrAn(decisiveField(type)))
  .join(', ')
  .replace(/, ([^,]*)$/, ' or $1');

/** A field with a problem; `undefined` stands for the entry as a whole. */
export type EntryProblem = Omit<FieldProblem, 'field'> & { field: string | undefined };

/** All problems of an entry, one for each place. Without any, it is an {@link AutomationEntry}. */
export function problemsOfEntry(entry: unknown): EntryProblem[] {
  if (!isMap(entry))
    return [{ path: [], field: undefined, problem: `must be a map with ${DECISIVE_FIELDS}` }];
  const wanted = TYPES.filter((type) => Object.hasOwn(entry, decisiveField(type)));
  const found = new Map<string, EntryProblem>();
  for (const problem of [
    ...[...Errors(AutomationEntrySchema, entry)].map(({ path, value }) => problemAt(path, value)),
    ...TYPES.flatMap((type) => type.check?.({ ...entry }) ?? []),
    ...problemsOfTimeout(entry),
    ...EVENT_RECEIVERS.flatMap((field) => problemsOfReceiverUrl(field, entry[field])),
    ...problemsOfWhenBusy(entry),
  ]) {
    const place = JSON.stringify(problem.path);
    if (!found.has(place)) found.set(place, problem);
  }
  return [...found.values(), ...contradictions(entry as AutomationEntry, wanted)];
}

export function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The field that makes an entry one of this type. */
function decisiveField({ fields }: ActionType): string {
  return Object.keys(fields)[0] ?? '';
}

/** @param pointer a JSON pointer (RFC 6901) into the entry */
function problemAt(pointer: string, value: unknown): EntryProblem {
  const path = [...ValuePointer.Format(pointer)];
  const [field = ''] = path;
  if (!Object.hasOwn(EXPECTED, field)) return { path, field, problem: unknownField(field) };
  const type = TYPES.find(({ fields }) => Object.hasOwn(fields, field));
  const explained = type?.explain?.(path, value);
  const quote = EVENT_RECEIVERS.some((each) => each === field) ? quotableUrl : type?.quote;
  return { path, ...(explained ?? { field, problem: `must be ${EXPECTED[field]}${butIs(value, quote)}` }) };
}

/** @param wanted the types that the entry is of: one, if nothing is wrong */
function contradictions(entry: AutomationEntry, wanted: readonly ActionType[]): EntryProblem[] {
  const type = wanted.at(-1);
  if (!type) return [{ path: [], field: undefined, problem: `needs ${DECISIVE_FIELDS}` }];
  const beside = wanted
    .slice(0, -1)
    .map(({ nouns }) => problemOf(decisiveField(type), `cannot be combined with ${nouns.one}`));
  const foreign = Object.keys(entry)
    .filter((name) => entry[name] !== undefined && !Object.hasOwn(type.fields, name))
    .flatMap((name) => {
      const owners = TYPES.filter(({ fields }) => Object.keys(fields).indexOf(name) > 0);
      if (owners.length === 0) return [];
      const nouns = owners.map(({ nouns: { many } }) => many).join(' and ');
      return problemOf(name, `is for ${nouns} only and cannot be combined with ${type.nouns.one}`);
    });
  return [...beside, ...foreign];
}

/** Of one that is a duration, whether it is too short or too long. */
function problemsOfTimeout({ timeout }: { timeout?: unknown }): EntryProblem[] {
  if (!Value.Check(commonFields.properties.timeout, timeout)) return [];
  const ms = parseDuration(timeout);
  if (ms >= 1 && ms <= MAX_TIMEOUT_MS) return [];
  return [problemOf('timeout', `must be ${EXPECTED['timeout']}${butIs(timeout)}`)];
}

function problemsOfWhenBusy({ whenBusy, concurrency }: Record<string, unknown>): EntryProblem[] {
  if (whenBusy !== 'skip') return [];
  if (concurrency === undefined) return [problemOf('whenBusy', 'skip needs a concurrency')];
  if (Number(concurrency) <= MAX_SKIPPING_CONCURRENCY) return [];
  return [problemOf('whenBusy', `skip needs a concurrency of at most ${MAX_SKIPPING_CONCURRENCY}`)];
}

function aOrAn(noun: string): string {
  return `${/^[aeio]/.test(noun) ? 'an' : 'a'} ${noun}`;
}

function problemOf(field: string, problem: string): EntryProblem {
  return { path: [field], field, problem };
}

function unknownField(name: string): string {
  const known = Object.keys(EXPECTED);
  return `is unknown.${didYouMean(name, known) || ` Known fields: ${known.join(', ')}.`}`;
}

/** Suggests the known name that this one may be a typo of; empty if there is none. */
export function didYouMean(name: string, known: readonly string[]): string {
  const nearest = known.length > 0 ? closest(name, known) : undefined;
  return nearest && distance(name, nearest) <= MAX_TYPOS ? ` Did you mean ${nearest}?` : '';
}

/** Quotes a value, unless it is long or may be a secret. */
function butIs(value: unknown, quote: ActionType['quote'] = (text) => text): string {
  if (typeof value === 'object' || value === undefined) return '';
  const shown = quote(String(value));
  return shown === undefined || shown.length > MAX_SHOWN_LENGTH ? '' : `, not '${shown}'`;
}

/** @param entry one without problems */
export function definitionOf(slug: string, entry: AutomationEntry): AutomationDefinition {
  const { timeout, concurrency, whenBusy, rate, keepRuns, onEnd, onFailure, schema } = entry;
  const type = TYPES.find((each) => entry[decisiveField(each)] !== undefined);
  if (!type) throw new Error(`${slug} needs ${DECISIVE_FIELDS}`);
  return {
    slug,
    name: entry.name ?? '',
    enabled: entry.enabled ?? true,
    action: type.fromEntry(entry) as Action,
    attempts: entry.attempts ?? 1,
    onWorkerLoss: entry.onWorkerLoss ?? 'rerun',
    ...(timeout !== undefined && { timeoutMs: parseDuration(timeout) }),
    ...(concurrency !== undefined && { concurrency }),
    ...(whenBusy === 'skip' && { whenBusy }),
    ...(rate !== undefined && { rate: parseRate(rate) }),
    ...(keepRuns !== undefined && { keepRuns }),
    ...(onEnd !== undefined && { onEnd }),
    ...(onFailure !== undefined && { onFailure }),
    ...(typeof schema === 'object' && { schema }),
  };
}

/** An entry with some fields changed. With another type of action, the fields of the one before go. */
export function changedEntry(entry: AutomationEntry, changes: AutomationEntry): AutomationEntry {
  const typeOf = (fields: AutomationEntry) => TYPES.find((type) => fields[decisiveField(type)] !== undefined);
  const [before, after = before] = [typeOf(entry), typeOf(changes)];
  const outdated = before === after ? [] : Object.keys(before?.fields ?? {});
  const kept = Object.entries(entry).filter(([field]) => !outdated.includes(field));
  return { ...Object.fromEntries(kept), ...changes };
}

/** The inverse of {@link definitionOf}, without fields that have their default. */
export function entryOf(definition: AutomationDefinition): AutomationEntry {
  const { name, enabled, action, timeoutMs, attempts, concurrency, rate, keepRuns, onWorkerLoss } =
    definition;
  const { onEnd, onFailure, schema, whenBusy } = definition;
  return {
    ...(name !== '' && { name }),
    ...(!enabled && { enabled }),
    ...actionTypeOf(action).toEntry(action),
    ...(timeoutMs !== undefined && { timeout: writeDuration(timeoutMs) }),
    ...(attempts !== 1 && { attempts }),
    ...(concurrency !== undefined && { concurrency }),
    ...(whenBusy === 'skip' && { whenBusy }),
    ...(rate && { rate: formatRate(rate) }),
    ...(keepRuns !== undefined && { keepRuns }),
    ...(onWorkerLoss !== 'rerun' && { onWorkerLoss }),
    ...(onEnd !== undefined && { onEnd }),
    ...(onFailure !== undefined && { onFailure }),
    ...(schema && { schema }),
  };
}

/** An automation for output: without possible secrets in URLs. */
export function masked<T extends AutomationDefinition>(automation: T): T {
  const { action, onEnd, onFailure } = automation;
  return {
    ...automation,
    action: actionTypeOf(action).masked(action),
    ...(onEnd !== undefined && { onEnd: maskReceiverUrl(onEnd) }),
    ...(onFailure !== undefined && { onFailure: maskReceiverUrl(onFailure) }),
  };
}

/** What an automation does, in the words of its entry: `/srv/report.py` or `https://example.com`. */
export function decisiveValue({ action }: AutomationDefinition): unknown {
  const type = actionTypeOf(action);
  return type.toEntry(action)[decisiveField(type)];
}
