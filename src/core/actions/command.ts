import { Type } from '@sinclair/typebox';
import { maskUrls } from '../masked-url.ts';
import type { ActionType } from './action-type.ts';

/** Starts a program with the payload on its standard input. No shell takes part. */
export interface CommandAction {
  type: 'command';
  /** The program and its arguments; the program is looked up on the worker's PATH. */
  argv: string[];
  /** Working directory; without it each attempt gets an empty one that is removed afterwards. */
  cwd?: string;
  /** Variables stored with the automation. */
  env: Record<string, string>;
  /** Names of variables taken from the worker's own environment, so that secrets stay out of Redis. */
  passEnv: string[];
}

export type CommandEndReason = 'exit_code' | 'signal';

/** Variables of the worker's environment that every command gets; others are passed by name. */
export const INHERITED_VARIABLES = ['PATH', 'HOME', 'LANG', 'TZ'];

/** Names that begin with ORC_ are orc's own. */
const VARIABLE_NAME = '^(?!ORC_)[A-Za-z_][A-Za-z0-9_]*$';

/** The system ends texts at a NUL character, so no program can receive one. */
const WITHOUT_NUL = '^[^\\u0000]*$';

const fields = {
  command: Type.Array(Type.String({ pattern: WITHOUT_NUL }), {
    minItems: 1,
    description: 'The program to run and its arguments; no shell interprets them',
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
    description: "Names of variables taken from the worker's environment; keeps secrets out of Redis",
  }),
};

export const command: ActionType<CommandAction, typeof fields> = {
  nouns: { one: 'a command', many: 'commands' },
  fields,
  expected: {
    command: 'a list of texts, the program first',
    cwd: 'the path of a directory',
    env: 'a map of variables to texts',
    passEnv: 'a list of variable names',
  },
  explain: ([field = '', name], value) => {
    const place = field === 'env' && name !== undefined ? `env.${name}` : field;
    if (field === 'passEnv') {
      return typeof value === 'string' ? { field, problem: wrongName(value) } : undefined;
    }
    if (typeof value === 'string' && value.includes('\0')) {
      return { field: place, problem: 'contains a NUL character, which no program can receive' };
    }
    if (place === field) return undefined;
    return isVariableName(name)
      ? { field: place, problem: 'must be text: put the value in quotes' }
      : { field, problem: wrongName(name) };
  },
  // TypeBox stops at the first name that is wrong.
  check: ({ env }) =>
    Object.keys(env instanceof Object && !Array.isArray(env) ? env : {})
      .filter((name) => !isVariableName(name))
      .map((name) => ({ path: ['env', name], field: 'env', problem: wrongName(name) })),
  fromEntry: ({ command: argv = [], cwd, env = {}, passEnv = [] }) => ({
    type: 'command',
    argv,
    env,
    passEnv,
    ...(cwd !== undefined && { cwd }),
  }),
  toEntry: ({ argv, cwd, env, passEnv }) => ({
    command: argv,
    ...(cwd !== undefined && { cwd }),
    ...(Object.keys(env).length > 0 && { env }),
    ...(passEnv.length > 0 && { passEnv }),
  }),
  describe: ({ argv, cwd = 'an empty one for each attempt', env, passEnv }) => [
    ['command', argv.map((word) => quoted(maskUrls(word))).join(' ')],
    ['directory', cwd],
    ['variables', Object.keys(env).join(' ') || undefined],
    ['passed on', passEnv.join(' ') || undefined],
  ],
  masked: (action) => ({ ...action, argv: action.argv.map(maskUrls) }),
  isSigned: false,
  /** The values of the variables that the automation gives to its command, not of those that every command gets. */
  secretsOf: ({ env, passEnv }, { environment }) => {
    const passed = passEnv.filter((name) => !INHERITED_VARIABLES.includes(name));
    return [...Object.values(env), ...passed.map((name) => environment[name] ?? '')];
  },
};

function isVariableName(name = ''): boolean {
  return new RegExp(VARIABLE_NAME).test(name);
}

function wrongName(name = ''): string {
  return name.startsWith('ORC_')
    ? `contains '${name}', but names that begin with ORC_ are reserved for orc`
    : `contains '${name}', which is not a variable name`;
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word);
}
