import { type Static, Type } from '@sinclair/typebox';
import { Errors } from '@sinclair/typebox/errors';
import { closest, distance } from 'fastest-levenshtein';
import {
  type Action,
  type AutomationDefinition,
  MAX_ATTEMPTS,
  MAX_CONCURRENCY,
  MAX_KEPT_RUNS,
  MAX_TIMEOUT_MS,
  ON_WORKER_LOSS,
  SLUG_MAX_LENGTH,
} from '../core/automation.ts';
import { maskUrl } from '../core/masked-url.ts';
import { formatRate, parseDuration, parseRate, writeDuration } from './durations.ts';

export const WHAT_A_SLUG_IS = `Use lower-case letters and digits, words joined by single hyphens, at most ${SLUG_MAX_LENGTH} characters, such as nightly-report.`;

/** The JSON Schema of a file of automations, from the package's folder. */
export const SCHEMA_FILE = 'openapi/automations.schema.json';

/** Names that begin with ORC_ are orc's own. */
const VARIABLE_NAME = '^(?!ORC_)[A-Za-z_][A-Za-z0-9_]*$';

/** The system ends texts at a NUL character, so that no program can be given one. */
const WITHOUT_NUL = '^[^\\u0000]*$';

/** A name that differs in more letters than this from every known one is not taken for a typo. */
const MAX_TYPOS = 3;

/** A value longer than this is not repeated in a message. */
const MAX_SHOWN_LENGTH = 40;

/**
 * An automation as its operator writes it: as an entry of a file, or as the options of `orc automations create`. What is
 * left out has its default. The descriptions are shown by editors.
 */
export const AutomationEntrySchema = Type.Partial(
  Type.Object({
    name: Type.String({ description: 'A name for people' }),
    enabled: Type.Boolean({ default: true, description: 'Whether it can be triggered' }),
    command: Type.Array(Type.String({ pattern: WITHOUT_NUL }), {
      minItems: 1,
      description: 'The program to run, and its arguments; no shell takes part',
    }),
    url: Type.String({
      pattern: '^https?://[^/?#@\\s]+([/?#]\\S*)?$',
      description: 'Deliver the payload to this URL instead of running a command',
    }),
    timeout: Type.String({
      pattern: '^\\d+(\\.\\d+)?(ms|s|m|h|d)$',
      description: 'Longest time of one attempt, such as 10m, at most 7d. Default: RUN_TIMEOUT_MS',
    }),
    attempts: Type.Integer({
      minimum: 1,
      maximum: MAX_ATTEMPTS,
      default: 1,
      description: 'How often a failing run is executed at most',
    }),
    concurrency: Type.Integer({
      minimum: 1,
      maximum: MAX_CONCURRENCY,
      description: 'How many runs may execute at the same time. Default: no limit',
    }),
    rate: Type.String({
      pattern: '^[1-9]\\d{0,8}/(s|m|h|d)$',
      description: 'How many runs are accepted, such as 60/m. Default: no limit',
    }),
    keepRuns: Type.Integer({
      minimum: 1,
      maximum: MAX_KEPT_RUNS,
      description: 'How many ended runs are kept. Default: RUN_RETENTION_COUNT',
    }),
    cwd: Type.String({
      minLength: 1,
      pattern: WITHOUT_NUL,
      description: 'Working directory of the command. Default: an empty one for each attempt',
    }),
    env: Type.Record(Type.String({ pattern: VARIABLE_NAME }), Type.String({ pattern: WITHOUT_NUL }), {
      additionalProperties: false,
      description: 'Variables for the command, stored in Redis',
    }),
    passEnv: Type.Array(Type.String({ pattern: VARIABLE_NAME }), {
      description:
        "Names of variables taken from the worker's environment, so that secrets stay out of Redis",
    }),
    onWorkerLoss: Type.Union(
      ON_WORKER_LOSS.map((choice) => Type.Literal(choice)),
      { default: 'rerun', description: 'What to do with a run whose worker dies while executing it' },
    ),
  }),
  { additionalProperties: false, oneOf: [{ required: ['command'] }, { required: ['url'] }] },
);
export type AutomationEntry = Static<typeof AutomationEntrySchema>;
type Field = keyof AutomationEntry;

/** What is expected of a field; continues "… is". */
const EXPECTED: Readonly<Record<Field, string>> = {
  name: 'text',
  enabled: 'true or false',
  command: 'a list of texts, the program first',
  url: 'an http or https URL without a user name or password',
  timeout: 'a number with a unit, such as 500ms, 90s, 10m or 24h, longer than 0 and at most 7d',
  attempts: `a whole number from 1 to ${MAX_ATTEMPTS}`,
  concurrency: `a whole number from 1 to ${MAX_CONCURRENCY}`,
  rate: 'a number per s, m, h or d, such as 5/s, 60/m or 1000/d',
  keepRuns: `a whole number from 1 to ${MAX_KEPT_RUNS}`,
  cwd: 'the path of a directory',
  env: 'a map of variables to texts',
  passEnv: "a list of variables' names",
  onWorkerLoss: ON_WORKER_LOSS.join(' or '),
};

/** Fields that only commands have. */
const OF_COMMANDS = ['cwd', 'env', 'passEnv'] as const satisfies Field[];

const HANDED_TO_PROGRAMS: ReadonlySet<string> = new Set(['command', 'cwd', 'env'] satisfies Field[]);

export interface EntryProblem {
  /** Where it is, from the entry on; empty for the entry as a whole. */
  path: readonly string[];
  /** What a person calls that place; `undefined` for the entry as a whole. */
  field: Field | (string & {}) | undefined;
  /** Continues the sentence that begins with the field. */
  problem: string;
}

/** Everything that is wrong with an entry, one problem a place. Without any, it is an {@link AutomationEntry}. */
export function problemsOfEntry(entry: unknown): EntryProblem[] {
  if (!isMap(entry)) {
    return [{ path: [], field: undefined, problem: 'is a map with a command or a url' }];
  }
  const found = new Map<string, EntryProblem>();
  for (const { path, value } of Errors(AutomationEntrySchema, entry)) {
    if (!found.has(path)) found.set(path, problemAt(path, value));
  }
  // TypeBox stops at the first name that is wrong.
  const { env } = entry as { env?: unknown };
  for (const name of isMap(env) ? Object.keys(env) : []) {
    const path = `/env/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    if (!new RegExp(VARIABLE_NAME).test(name)) found.set(path, problemAt(path, undefined));
  }
  const problems = [...found.values()];
  const isSound = (field: Field) => !problems.some(({ path }) => path[0] === field);
  return [...problems, ...contradictions(entry as AutomationEntry, isSound)];
}

function isMap(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @param pointer a JSON pointer (RFC 6901) into the entry */
function problemAt(pointer: string, value: unknown): EntryProblem {
  const path = pointer
    .slice(1)
    .split('/')
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  const [field = '', name = ''] = path;
  if (!isField(field)) return { path, field, problem: unknownField(field) };
  if (typeof value === 'string' && value.includes('\0') && HANDED_TO_PROGRAMS.has(field)) {
    const place = field === 'env' ? `env.${name}` : field;
    return { path, field: place, problem: 'holds a NUL character, which no program can be given' };
  }
  if (field === 'env' && path.length > 1) {
    if (new RegExp(VARIABLE_NAME).test(name)) {
      return { path, field: `env.${name}`, problem: 'is text: write its value in quotes' };
    }
    return { path, field, problem: `holds ${wrongName(name)}` };
  }
  if (field === 'passEnv' && typeof value === 'string')
    return { path, field, problem: `holds ${wrongName(value)}` };
  return { path, field, problem: `is ${EXPECTED[field]}${not(field, value)}` };
}

/** What no field alone can show. */
function contradictions(entry: AutomationEntry, isSound: (field: Field) => boolean): EntryProblem[] {
  const { command, url, timeout } = entry;
  if (command === undefined && url === undefined) {
    return [{ path: [], field: undefined, problem: 'needs a command or a url' }];
  }
  const ofUrl = url === undefined ? [] : contradictionsOfUrl(entry, isSound('url'));
  if (timeout === undefined || !isSound('timeout') || isTimeout(parseDuration(timeout))) return ofUrl;
  return [...ofUrl, problemOf('timeout', `is ${EXPECTED.timeout}${not('timeout', timeout)}`)];
}

function contradictionsOfUrl(entry: AutomationEntry, isSound: boolean): EntryProblem[] {
  const { command, url = '' } = entry;
  return [
    ...(command === undefined ? [] : [problemOf('url', 'is there beside a command: keep one of them')]),
    ...(isSound && !URL.canParse(url) ? [problemOf('url', `is ${EXPECTED.url}`)] : []),
    ...OF_COMMANDS.filter((field) => entry[field] !== undefined).map((field) =>
      problemOf(field, 'is for commands; an automation with a URL has none'),
    ),
  ];
}

function isTimeout(ms: number): boolean {
  return ms >= 1 && ms <= MAX_TIMEOUT_MS;
}

function problemOf(field: Field, problem: string): EntryProblem {
  return { path: [field], field, problem };
}

function isField(name: string): name is Field {
  return Object.hasOwn(EXPECTED, name);
}

function unknownField(name: string): string {
  const nearest = closest(name, Object.keys(EXPECTED));
  return distance(name, nearest) <= MAX_TYPOS
    ? `is not known. Did you mean ${nearest}?`
    : `is not known. There are: ${Object.keys(EXPECTED).join(', ')}.`;
}

function wrongName(name: string): string {
  return name.startsWith('ORC_')
    ? `'${name}', but names that begin with ORC_ are set by orc itself`
    : `'${name}', which is not a variable's name`;
}

/** Quotes a value, unless it is long or may be a secret. */
function not(field: Field, value: unknown): string {
  const isSecret = field === 'url' && String(value).includes('@');
  if (isSecret || typeof value === 'object' || value === undefined) return '';
  const shown = field === 'url' ? maskUrl(String(value)) : String(value);
  return shown.length > MAX_SHOWN_LENGTH ? '' : `, not '${shown}'`;
}

/** @param entry one without problems */
export function definitionOf(slug: string, entry: AutomationEntry): AutomationDefinition {
  const { timeout, concurrency, rate, keepRuns } = entry;
  return {
    slug,
    name: entry.name ?? '',
    enabled: entry.enabled ?? true,
    action: actionOf(entry),
    attempts: entry.attempts ?? 1,
    onWorkerLoss: entry.onWorkerLoss ?? 'rerun',
    ...(timeout !== undefined && { timeoutMs: parseDuration(timeout) }),
    ...(concurrency !== undefined && { concurrency }),
    ...(rate !== undefined && { rate: parseRate(rate) }),
    ...(keepRuns !== undefined && { keepRuns }),
  };
}

function actionOf({ command = [], url, cwd, env = {}, passEnv = [] }: AutomationEntry): Action {
  if (url !== undefined) return { type: 'http', url };
  return { type: 'command', argv: command, env, passEnv, ...(cwd !== undefined && { cwd }) };
}

/** The opposite of {@link definitionOf}, without what has its default. */
export function entryOf(definition: AutomationDefinition): AutomationEntry {
  const { name, enabled, action, timeoutMs, attempts, concurrency, rate, keepRuns, onWorkerLoss } =
    definition;
  return {
    ...(name !== '' && { name }),
    ...(!enabled && { enabled }),
    ...(action.type === 'http' ? { url: action.url } : { command: action.argv }),
    ...(action.type === 'command' && action.cwd !== undefined && { cwd: action.cwd }),
    ...(action.type === 'command' && Object.keys(action.env).length > 0 && { env: action.env }),
    ...(action.type === 'command' && action.passEnv.length > 0 && { passEnv: action.passEnv }),
    ...(timeoutMs !== undefined && { timeout: writeDuration(timeoutMs) }),
    ...(attempts !== 1 && { attempts }),
    ...(concurrency !== undefined && { concurrency }),
    ...(rate && { rate: formatRate(rate) }),
    ...(keepRuns !== undefined && { keepRuns }),
    ...(onWorkerLoss !== 'rerun' && { onWorkerLoss }),
  };
}
