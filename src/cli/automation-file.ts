import { Type } from '@sinclair/typebox';
import {
  type Document,
  isNode,
  isScalar,
  isSeq,
  isMap as isYamlMap,
  LineCounter,
  type Pair,
  parseDocument,
} from 'yaml';
import { isSlug, SLUG_MAX_LENGTH, SLUG_PATTERN } from '../core/automation.ts';
import {
  type AutomationEntry,
  AutomationEntrySchema,
  type EntryProblem,
  isMap,
  problemsOfEntry,
  SCHEMA_FILE,
  WHAT_A_SLUG_IS,
} from '../core/automation-entry.ts';
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

/** Where a field is in a file of automations, such as `automations.yaml:7`. */
export function placeOf(text: string, name: string, slug: string, field: string): string {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, merge: true, stringKeys: true });
  return `${name}:${lineCounter.linePos(offsetOf(document, ['automations', slug, field])).line || 1}`;
}

/** Resolves aliases, up to a limit that stops a small file from becoming a huge one. */
function contentOf(document: Document): unknown {
  try {
    return document.toJS();
  } catch (error) {
    throw new CommandError((error as Error).message, { cause: error });
  }
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
