import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { MAX_PROMPT_LENGTH } from '../core/actions/agent.ts';
import type { AutomationEntry } from '../core/automation-entry.ts';
import { CommandError } from './output.ts';

/**
 * An entry with the payload schema itself in place of the path of its file.
 *
 * @param entry one without problems
 * @param directory what the path is relative to
 * @throws CommandError with a message that continues the name of the field, when there is no such file or its schema is not
 *   accepted
 */
export async function withSchema(entry: AutomationEntry, directory: string): Promise<AutomationEntry> {
  if (entry.schema === undefined) return entry;
  const isPath = typeof entry.schema === 'string';
  const schema: unknown = isPath ? await contentOf(resolve(directory, `${entry.schema}`)) : entry.schema;
  // Only who sets a schema waits until its library is loaded.
  const { problemOfSchema } = await import('../core/payload-schema.ts');
  const problem = problemOfSchema(schema);
  if (problem === undefined) return { ...entry, schema: schema as object };
  throw new CommandError(`${isPath ? `${entry.schema} ` : ''}is not accepted: ${problem}.`);
}

/**
 * An entry with the prompt itself in place of the path of its file.
 *
 * @param entry one without problems
 * @param directory what the path is relative to
 * @throws CommandError with a message that continues the name of the field
 */
export async function withPrompt(entry: AutomationEntry, directory: string): Promise<AutomationEntry> {
  const { promptFile, ...others } = entry;
  if (promptFile === undefined) return entry;
  const file = resolve(directory, String(promptFile));
  const prompt = await readFile(file, 'utf8').catch((error: Error) => {
    throw new CommandError(`${file} cannot be read: ${error.message}.`, { cause: error });
  });
  if (prompt.trim() === '') throw new CommandError(`${file} is empty: write what the agent is to do.`);
  if (prompt.length > MAX_PROMPT_LENGTH)
    throw new CommandError(`${file} has more than ${MAX_PROMPT_LENGTH} characters.`);
  return { ...others, prompt };
}

/** The fields that may name a file, and what puts its content in their place. */
const FILES = { schema: withSchema, promptFile: withPrompt };

/**
 * The entries of a file of automations, each as {@link withSchema} and {@link withPrompt} have it.
 *
 * @param name the file's name in messages
 * @param placeOf the file's name and the line of a field
 * @throws CommandError with every problem, one per line
 */
export async function withFiles(
  entries: ReadonlyMap<string, AutomationEntry>,
  name: string,
  placeOf: (slug: string, field: string) => string,
  directory: string,
): Promise<Map<string, AutomationEntry>> {
  const loaded = new Map<string, AutomationEntry>();
  const problems: string[] = [];
  for (const [slug, entry] of entries) {
    let found = entry;
    for (const [field, load] of Object.entries(FILES)) {
      found = await load(found, directory).catch(({ message }: CommandError) => {
        problems.push(`${placeOf(slug, field)}: ${slug}.${field} ${message}`);
        return found;
      });
    }
    loaded.set(slug, found);
  }
  if (problems.length === 0) return loaded;
  const summary = `${name} is not a valid file of automations; nothing was changed.`;
  throw new CommandError([summary, ...problems].join('\n'));
}

async function contentOf(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    const fault = error instanceof SyntaxError ? 'is not JSON' : 'cannot be read';
    throw new CommandError(`${file} ${fault}: ${(error as Error).message}.`, { cause: error });
  }
}
