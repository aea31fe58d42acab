import { KindGuard, type TSchema } from '@sinclair/typebox';
import { ACTION_TYPES } from '../core/actions/actions.ts';
import type { Automation } from '../core/automation.ts';
import {
  type AutomationEntry,
  COMMON_FIELDS,
  entryOf,
  isMap,
  masked,
  problemsOfEntry,
} from '../core/automation-entry.ts';
import { quoteWord, wordsOf } from '../core/command-line.ts';
import { problemOfSchema } from '../core/payload-schema.ts';

/** How a field is typed: words are quoted as in a shell, lines are KEY=VALUE. */
type Control = 'text' | 'area' | 'words' | 'lines' | 'number' | 'choice' | 'flag' | 'json';

/** A field of an automation's entry, as the form has it. */
export interface FormField {
  /** Its name in the form: with the type of action that it belongs to. */
  input: string;
  /** Its name in the entry. */
  field: string;
  label: string;
  /** The description that editors show, too. */
  hint: string;
  control: Control;
  choices: string[];
  /** What counts when nothing is typed. */
  default: string;
}

/** A type of action with its fields. */
export interface FormKind {
  /** `type` of its actions. */
  type: string;
  /** "a command" */
  noun: string;
  fields: FormField[];
}

/** What somebody typed, by the names of inputs. */
export type FormValues = ReadonlyMap<string, string>;

/** Names of fields that cannot be read as words. */
const LABELS: Readonly<Record<string, string>> = {
  url: 'URL',
  cwd: 'Working directory',
  env: 'Variables',
  passEnv: 'Variables passed on',
  gitEnv: 'Variables for git',
  repo: 'Repository',
  ref: 'Branch, tag or commit',
  refFrom: 'Ref from the payload',
  onEnd: 'Event on end',
  onFailure: 'Event on failure',
  onWorkerLoss: 'When its worker dies',
  keepRuns: 'Kept runs',
  schema: 'Payload schema',
};

/** More of it than the description says, because it is typed into a form. */
const HOW_TO_TYPE: Partial<Record<Control, string>> = {
  words: 'Separate words by spaces; quote those that contain spaces, as in a shell.',
  lines: 'One KEY=VALUE per line.',
};

/** Files are read by the command line only. */
const NOT_IN_FORMS = ['promptFile'];

/** A text that may be longer gets more room, in characters. */
const ONE_LINE = 1000;

/** Stands for what may be a secret, which the form does not show. */
const HIDDEN = '***';

/** The types of actions, from the same schemas that the command line and files of automations are held against. */
export const FORM_KINDS: readonly FormKind[] = Object.entries(ACTION_TYPES).map(
  ([type, { fields, nouns }]) => ({
    type,
    noun: nouns.one,
    fields: fieldsOf(fields, `${type}.`),
  }),
);

/** The fields that every automation has. */
export const FORM_FIELDS: readonly FormField[] = fieldsOf(COMMON_FIELDS, '');

export const NEW_AUTOMATION: FormValues = new Map([
  ['type', FORM_KINDS[0]?.type ?? ''],
  ['enabled', 'on'],
]);

/** What the form begins with when an automation is edited. It has no secrets: they are shown as `***`. */
export function valuesOf(automation: Automation): FormValues {
  const { type } = automation.action;
  const entry = entryOf(masked(automation));
  const values = [...kindOf(type).fields, ...FORM_FIELDS].map(
    ({ input, field, control }): [string, string] => [
      input,
      field === 'enabled' ? flag(automation.enabled) : write(control, entry[field]),
    ],
  );
  return new Map([['type', type], ...values]);
}

export interface ReadForm {
  /** The texts as they were typed, to be shown again. */
  values: FormValues;
  entry: AutomationEntry;
  /** One sentence for each input with something wrong. */
  problems: Map<string, string>;
}

/**
 * Reads a form that was sent; what is wrong with it is said in the words of the command line.
 *
 * @param stored the automation that is edited: what was not typed over stays as it is, hidden parts included
 */
export function readForm(form: URLSearchParams, stored?: Automation): ReadForm {
  const values = new Map([...form].map(([name, value]) => [name, value.replaceAll('\r\n', '\n')]));
  const fields = [...kindOf(values.get('type') ?? '').fields, ...FORM_FIELDS];
  const problems = new Map<string, string>();
  const entry: Record<string, unknown> = {};
  const shown = stored && valuesOf(stored);
  const before = stored && entryOf(stored);
  fields.forEach((each, index) => {
    const { input, field, label } = each;
    const read = readField(each, values.get(input) ?? '', {
      shown: shown?.get(input),
      value: before?.[field],
    });
    if ('problem' in read) problems.set(input, `${label} ${read.problem}.`);
    // The first field makes it a command, for example, and must not be left out.
    else if (read.value !== undefined || index === 0) entry[field] = read.value ?? '';
  });
  addProblems(problems, fields, entry);
  return { values, entry, problems };
}

/** What is wrong with the entry besides what could not be read. */
function addProblems(
  problems: Map<string, string>,
  fields: readonly FormField[],
  entry: Readonly<Record<string, unknown>>,
): void {
  const add = (input: string, problem: string) => {
    if (!problems.has(input)) problems.set(input, problem);
  };
  const { schema } = entry;
  const schemaProblem = schema === undefined ? undefined : problemOfSchema(schema);
  if (schemaProblem !== undefined) add('schema', `Payload schema is not accepted: ${schemaProblem}.`);
  for (const { path, field, problem } of problemsOfEntry(entry)) {
    const found = fields.find((each) => each.field === path[0]);
    // A part of a field, such as env.TOKEN, has a name of its own.
    const subject = field === path[0] ? found?.label : field;
    add(found?.input ?? 'type', `${subject ?? 'It'} ${problem}.`);
  }
}

function fieldsOf(properties: Readonly<Record<string, TSchema>>, prefix: string): FormField[] {
  return Object.entries(properties)
    .filter(([field]) => !NOT_IN_FORMS.includes(field))
    .map(([field, schema]) => {
      const control = controlOf(schema);
      const { description = '' } = schema;
      return {
        input: `${prefix}${field}`,
        field,
        label: LABELS[field] ?? wordsIn(field),
        hint: [
          `${description.replace(/, or the path of a file with one, relative to this file/, '')}.`,
          HOW_TO_TYPE[control] ?? '',
        ]
          .join(' ')
          .trim(),
        control,
        choices: control === 'choice' ? choicesOf(schema) : [],
        default: schema.default === undefined ? '' : String(schema.default),
      };
    });
}

function controlOf(schema: TSchema): Control {
  if (KindGuard.IsArray(schema)) return 'words';
  if (KindGuard.IsRecord(schema)) return 'lines';
  if (KindGuard.IsBoolean(schema)) return 'flag';
  if (KindGuard.IsInteger(schema) || KindGuard.IsNumber(schema)) return 'number';
  if (KindGuard.IsUnion(schema)) return choicesOf(schema).length > 0 ? 'choice' : 'json';
  return (schema['maxLength'] ?? 0) > ONE_LINE ? 'area' : 'text';
}

function choicesOf(schema: TSchema): string[] {
  const choices = KindGuard.IsUnion(schema) ? schema.anyOf : [];
  return choices.flatMap((each) => (KindGuard.IsLiteral(each) ? [String(each.const)] : []));
}

/** `checkAttempts` becomes "Check attempts". */
function wordsIn(field: string): string {
  const words = field.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function kindOf(type: string): FormKind {
  const [first] = FORM_KINDS;
  const kind = FORM_KINDS.find((each) => each.type === type) ?? first;
  if (!kind) throw new Error('There are no types of actions.');
  return kind;
}

function flag(isOn: boolean): string {
  return isOn ? 'on' : '';
}

function write(control: Control, value: unknown): string {
  if (value === undefined) return '';
  if (control === 'words') return (value as string[]).map(quoteWord).join(' ');
  if (control === 'lines')
    return Object.keys(value as object)
      .map((name) => `${name}=${HIDDEN}`)
      .join('\n');
  if (control === 'json') return JSON.stringify(value, null, 2);
  return String(value);
}

/** What was stored, and how the form showed it; neither for a new automation. */
interface Before {
  shown: string | undefined;
  value: unknown;
}

type ReadText = { value: unknown } | { problem: string };

function readField({ field, control }: FormField, text: string, before: Before): ReadText {
  if (field === 'enabled') return { value: text !== '' };
  // Not typed over: what cannot be typed, such as an empty list that is no default, stays, too.
  if (text === before.shown) return { value: before.value };
  return readText(control, text, before);
}

function readText(control: Control, text: string, before: Before): ReadText {
  if (text.trim() === '') return { value: undefined };
  switch (control) {
    case 'words':
      return readWords(text, before);
    case 'lines':
      return readLines(text, before);
    case 'number':
      return { value: /^\d{1,9}(\.\d{1,6})?$/.test(text.trim()) ? Number(text) : text };
    case 'json':
      return readJson(text);
    default:
      if (text.includes(HIDDEN) && before.shown?.includes(HIDDEN)) return { problem: HIDDEN_PART };
      return { value: control === 'area' ? text : text.trim() };
  }
}

const HIDDEN_PART = `contains ${HIDDEN}, which stands for a part that is not shown: type all of it`;

function readWords(text: string, { shown = '', value }: Before): ReadText {
  const words = wordsOf(text);
  if (!words) return { problem: 'has a quote that is not closed' };
  const hidden = wordsOf(shown) ?? [];
  const restored = words.map((word) => {
    const position = word.includes(HIDDEN) ? hidden.indexOf(word) : -1;
    return position < 0 ? word : ((value as string[])[position] ?? word);
  });
  const isHidden = restored.some((word) => word.includes(HIDDEN) && shown.includes(HIDDEN));
  return isHidden ? { problem: HIDDEN_PART } : { value: restored };
}

function readLines(text: string, { value }: Before): ReadText {
  const before = isMap(value) ? value : {};
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const pairs: [string, unknown][] = [];
  for (const line of lines) {
    const [, name, typed] = /^([^=]*)=(.*)$/.exec(line) ?? [];
    // What was typed may be a secret.
    if (name === undefined) return { problem: 'takes one KEY=VALUE per line' };
    const key = name.trim();
    pairs.push([key, typed === HIDDEN && Object.hasOwn(before, key) ? before[key] : typed]);
  }
  return { value: Object.fromEntries(pairs) };
}

function readJson(text: string): ReadText {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (error) {
    return { problem: `is not JSON: ${(error as Error).message}` };
  }
}
