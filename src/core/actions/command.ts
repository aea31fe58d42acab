import { Type } from '@sinclair/typebox';
import { maskUrls } from '../masked-url.ts';
import type { ActionType } from './action-type.ts';
import {
  checkVariables,
  describeVariables,
  EXPECTED_VARIABLES,
  explainVariables,
  HAS_NUL,
  secretsOfVariables,
  type Variables,
  variableFields,
  variablesToEntry,
  WITHOUT_NUL,
} from './variables.ts';

/** Starts a program with the payload on its standard input. No shell takes part. */
export interface CommandAction extends Variables {
  type: 'command';
  /** The program and its arguments; the program is looked up on the worker's PATH. */
  argv: string[];
  /** Working directory; without it each attempt gets an empty one that is removed afterwards. */
  cwd?: string;
}

export const COMMAND_END_REASONS = ['exit_code', 'signal'] as const;

const fields = {
  command: Type.Array(Type.String({ pattern: WITHOUT_NUL }), {
    minItems: 1,
    description: 'The program to run and its arguments; no shell interprets them',
  }),
  cwd: Type.String({
    pattern: `^/${WITHOUT_NUL.slice(1)}`,
    description: 'Working directory of the command, an absolute path. Default: an empty one for each attempt',
  }),
  ...variableFields,
};

export const command: ActionType<CommandAction, typeof fields> = {
  nouns: { one: 'a command', many: 'commands' },
  fields,
  expected: {
    command: 'a list of texts, the program first',
    cwd: 'the absolute path of a directory',
    ...EXPECTED_VARIABLES,
  },
  explain: (path, value) => {
    const [field = ''] = path;
    if (Object.hasOwn(variableFields, field)) return explainVariables(path, value);
    return typeof value === 'string' && value.includes('\0') ? { field, problem: HAS_NUL } : undefined;
  },
  check: checkVariables,
  fromEntry: ({ command: argv = [], cwd, env = {}, passEnv = [] }) => ({
    type: 'command',
    argv,
    env,
    passEnv,
    ...(cwd !== undefined && { cwd }),
  }),
  toEntry: ({ argv, cwd, ...variables }) => ({
    command: argv,
    ...(cwd !== undefined && { cwd }),
    ...variablesToEntry(variables),
  }),
  describe: ({ argv, cwd = 'an empty one for each attempt', ...variables }) => [
    ['command', argv.map((word) => quoted(maskUrls(word))).join(' ')],
    ['directory', cwd],
    ...describeVariables(variables),
  ],
  masked: (action) => ({ ...action, argv: action.argv.map(maskUrls) }),
  isSigned: false,
  secretsOf: (action, { environment }) => secretsOfVariables(action, environment),
};

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word);
}
