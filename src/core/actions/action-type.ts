import type { Static, TObject, TProperties } from '@sinclair/typebox';

/** What is wrong with a field of an automation's entry. */
export interface FieldProblem {
  /** Where it is, from the entry on. */
  path: readonly string[];
  /** What people call that place. */
  field: string;
  /** Continues the sentence that begins with the field. */
  problem: string;
}

/** What an attempt's secrets are taken from. */
export interface SecretSources {
  /** The worker's own. */
  environment: Readonly<NodeJS.ProcessEnv>;
}

/** What orc knows of one type of action: A as it is stored, F as the fields of an automation's entry. */
export interface ActionType<
  A extends { type: string } = { type: string },
  F extends TProperties = TProperties,
> {
  /** "a command", "commands" */
  nouns: { one: string; many: string };
  /** An entry with the first of these is of this type. Their descriptions are shown by editors. */
  fields: F;
  /** What is expected of each field; continues "… is". */
  expected: Readonly<Record<keyof F & string, string>>;
  /** Words for a problem of a field that are more exact than `expected`. */
  explain?(path: readonly string[], value: unknown): Omit<FieldProblem, 'path'> | undefined;
  /** Problems that the schemas of the fields miss. The entry may have others. */
  check?(entry: Readonly<Record<string, unknown>>): FieldProblem[];
  /** A wrong value as a message may repeat it. */
  quote?(value: string): string | undefined;
  /** @param entry one without problems */
  fromEntry(entry: Partial<Static<TObject<F>>>): A;
  /** The opposite, without what has its default. */
  toEntry(action: A): Partial<Static<TObject<F>>>;
  /** What an operator is shown of it; in lists the first. */
  describe(action: A): [[label: string, text: string], ...[label: string, text: string | undefined][]];
  /** Without what may be a secret in a URL. */
  masked(action: A): A;
  /** Whether its receiver verifies a signature: such an automation is issued a signing secret. */
  isSigned: boolean;
  /** What it is given and nobody may read in what it prints. */
  secretsOf(action: A, sources: SecretSources): string[];
}
