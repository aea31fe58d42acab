import { Type } from '@sinclair/typebox';
import type { FieldProblem } from './action-type.ts';

/** Variables of the worker's environment that every program gets; others are passed by name. */
export const INHERITED_VARIABLES = ['PATH', 'HOME', 'LANG', 'TZ'];

/** Names that begin with ORC_ are orc's own. */
export const VARIABLE_NAME = '^(?!ORC_)[A-Za-z_][A-Za-z0-9_]*$';

/** The system ends texts at a NUL character, so no program can receive one. */
export const WITHOUT_NUL = '^[^\\u0000]*$';

export const HAS_NUL = 'contains a NUL character, which no program can receive';

/** What the programs of an action are given besides what all get. */
export interface Variables {
  /** Variables stored with the automation. */
  env: Record<string, string>;
  /** Names of variables taken from the worker's own environment, so that secrets stay out of Redis. */
  passEnv: string[];
}

/** The fields of every type of action that starts programs. */
export const variableFields = {
  env: Type.Record(Type.String({ pattern: VARIABLE_NAME }), Type.String({ pattern: WITHOUT_NUL }), {
    additionalProperties: false,
    description: 'Variables for the command or agent, stored in Redis',
  }),
  passEnv: Type.Array(Type.String({ pattern: VARIABLE_NAME }), {
    description: "Names of variables taken from the worker's environment; keeps secrets out of Redis",
  }),
};

export const EXPECTED_VARIABLES = {
  env: 'a map of variables to texts',
  passEnv: 'a list of variable names',
};

/** Words for what is wrong with one of {@link variableFields}, if `expected` does not say it. */
export function explainVariables(
  [field = '', name]: readonly string[],
  value: unknown,
): Omit<FieldProblem, 'path'> | undefined {
  if (field === 'passEnv') {
    return typeof value === 'string' ? { field, problem: wrongName(value) } : undefined;
  }
  if (field !== 'env' || name === undefined) return undefined;
  const place = `env.${name}`;
  if (typeof value === 'string' && value.includes('\0')) return { field: place, problem: HAS_NUL };
  return isVariableName(name)
    ? { field: place, problem: 'must be text: put the value in quotes' }
    : { field, problem: wrongName(name) };
}

/** What the schema misses: TypeBox stops at the first name that is wrong. */
export function checkVariables({ env }: Readonly<Record<string, unknown>>): FieldProblem[] {
  return Object.keys(env instanceof Object && !Array.isArray(env) ? env : {})
    .filter((name) => !isVariableName(name))
    .map((name) => ({ path: ['env', name], field: 'env', problem: wrongName(name) }));
}

/** Without what has its default. */
export function variablesToEntry({ env, passEnv }: Variables): Partial<Variables> {
  return {
    ...(Object.keys(env).length > 0 && { env }),
    ...(passEnv.length > 0 && { passEnv }),
  };
}

export function describeVariables({ env, passEnv }: Variables): [string, string | undefined][] {
  return [
    ['variables', Object.keys(env).join(' ') || undefined],
    ['passed on', passEnv.join(' ') || undefined],
  ];
}

/** The values that the automation gives to its programs, not those that every program gets. */
export function secretsOfVariables(
  { env, passEnv }: Variables,
  environment: Readonly<NodeJS.ProcessEnv>,
): string[] {
  const passed = passEnv.filter((name) => !INHERITED_VARIABLES.includes(name));
  return [...Object.values(env), ...passed.map((name) => environment[name] ?? '')];
}

function isVariableName(name: string): boolean {
  return new RegExp(VARIABLE_NAME).test(name);
}

export function wrongName(name: string): string {
  return name.startsWith('ORC_')
    ? `contains '${name}', but names that begin with ORC_ are reserved for orc`
    : `contains '${name}', which is not a variable name`;
}
