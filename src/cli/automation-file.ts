import { Type } from '@sinclair/typebox';
import {
  Document,
  isNode,
  isScalar,
  isSeq,
  isMap as isYamlMap,
  LineCounter,
  type Pair,
  parseDocument,
  type YAMLMap,
} from 'yaml';
import { type Automation, isSlug, SLUG_MAX_LENGTH, SLUG_PATTERN } from '../core/automation.ts';
import {
  type AutomationEntry,
  AutomationEntrySchema,
  type EntryProblem,
  entryOf,
  isMap,
  problemsOfEntry,
  SCHEMA_FILE,
  WHAT_A_SLUG_IS,
} from './automation-entry.ts';
import { CommandError } from './output.ts';

const AutomationFileSchema = Type.Object(
  {
    automations: Type.Record(Type.String({ pattern: SLUG_PATTERN }), AutomationEntrySchema, {
      additionalProperties: false,
      propertyNames: { maxLength: SLUG_MAX_LENGTH },
      description: 'The automations by slug, their name in the URL',
    }),
  },
  { additionalProperties: false },
);

/** The JSON Schema of the file, as the text of {@link SCHEMA_FILE}. */
export function schemaText(): string {
  const schema = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Automations of orc, for `orc apply`',
    ...AutomationFileSchema,
  };
  return `${JSON.stringify(schema, null, 2)}\n`;
}

/**
 * Reads a file of automations, in YAML or JSON.
 *
 * @param name the file's name in messages
 * @returns the entries by slug, in the order of the file
 * @throws CommandError with every problem, one per line, each with the file's name and the line number
 */
export function readAutomationFile(text: string, name: string): Map<string, AutomationEntry> {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, prettyErrors: false, merge: true, stringKeys: true });
  const messageAt = (offset: number, message: string) =>
    `${name}:${lineCounter.linePos(offset).line || 1}: ${message}`;
  const refuse = (messages: string[]) => {
    if (messages.length === 0) return;
    const summary = `${name} is not a valid file of automations; nothing was changed.`;
    throw new CommandError([summary, ...messages].join('\n'));
  };
  refuse(document.errors.map(({ pos, message }) => messageAt(pos[0], message)));
  const content = contentOf(document);
  refuse(problemsOfFile(content).map(({ path, message }) => messageAt(offsetOf(document, path), message)));
  return new Map(Object.entries((content as { automations: Record<string, AutomationEntry> }).automations));
}

/** Resolves aliases, up to a limit that stops a small file from becoming a huge one. */
function contentOf(document: Document): unknown {
  try {
    return document.toJS();
  } catch (error) {
    throw new CommandError((error as Error).message, { cause: error });
  }
}

export function entriesOf(automations: readonly Automation[]): Record<string, AutomationEntry> {
  return Object.fromEntries(automations.map((automation) => [automation.slug, entryOf(automation)]));
}

/** First lines of what `orc export` prints. */
const HEADER = [
  ` yaml-language-server: $schema=./node_modules/orc/${SCHEMA_FILE}`,
  ' Written by `orc export`, read by `orc apply -f`. It has no API keys and signing secrets, but the values of env:.',
].join('\n');

/** The file that describes these automations: to apply it changes nothing. */
export function writeAutomationFile(automations: readonly Automation[]): string {
  const document = new Document({ automations: entriesOf(automations) });
  document.commentBefore = HEADER;
  const entries = document.get('automations') as YAMLMap;
  entries.items.forEach((pair, index) => {
    // An empty line between two automations; lists of words on one line.
    if (index > 0 && isNode(pair.key)) pair.key.spaceBefore = true;
    if (!isYamlMap(pair.value)) return;
    for (const { value } of pair.value.items) {
      if (isSeq(value))
        value.flow = !value.items.some((item) => isScalar(item) && /\n/.test(String(item.value)));
    }
  });
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}

interface FileProblem {
  path: readonly string[];
  message: string;
}

function problemsOfFile(content: unknown): FileProblem[] {
  if (!isMap(content)) return [{ path: [], message: 'the file must begin with automations:' }];
  const { automations, ...others } = content;
  const unknown = Object.keys(others).map((field) => ({
    path: [field],
    message: `${field} is unknown; list the automations under automations:`,
  }));
  if (!isMap(automations)) {
    const message = 'automations must be a map of slugs to automations; {} is an empty one';
    return [...unknown, { path: ['automations'], message }];
  }
  const problems = Object.entries(automations).flatMap(([slug, entry]) => {
    const ofSlug = { path: ['automations', slug], message: `'${slug}' is not a slug. ${WHAT_A_SLUG_IS}` };
    const ofEntry = problemsOfEntry(entry).map((problem) => inFile(slug, problem));
    return isSlug(slug) ? ofEntry : [ofSlug, ...ofEntry];
  });
  return [...unknown, ...problems];
}

function inFile(slug: string, { path, field, problem }: EntryProblem): FileProblem {
  const place = field === undefined ? slug : `${slug}.${field}`;
  return { path: ['automations', slug, ...path], message: `${place} ${problem}` };
}

/** Where something begins, or the nearest thing around it: what an alias or a merge brought in is written elsewhere. */
function offsetOf(document: Document, path: readonly string[]): number {
  let node: unknown = document.contents;
  let offset = startOf(node) ?? 0;
  for (const name of path) {
    if (isYamlMap(node)) {
      const pair: Pair | undefined = node.items.find(
        ({ key }) => isScalar(key) && String(key.value) === name,
      );
      if (!pair) break;
      offset = startOf(pair.key) ?? offset;
      node = pair.value;
    } else if (isSeq(node)) {
      node = node.items[Number(name)];
      offset = startOf(node) ?? offset;
    } else break;
  }
  return offset;
}

function startOf(node: unknown): number | undefined {
  return isNode(node) ? node.range?.[0] : undefined;
}
