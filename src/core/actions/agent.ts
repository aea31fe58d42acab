import { Type } from '@sinclair/typebox';
import { WHAT_A_REPOSITORY_IS } from '../git-names.ts';
import { maskUrl, maskUrls } from '../masked-url.ts';
import { REF_PATTERN } from '../ref-name.ts';
import type { ActionType } from './action-type.ts';
import { problemsOfAgent } from './agent-problems.ts';
import {
  checkVariables,
  describeVariables,
  EXPECTED_VARIABLES,
  explainVariables,
  HAS_NUL,
  secretsOfVariables,
  VARIABLE_NAME,
  type Variables,
  variableFields,
  variablesToEntry,
  WITHOUT_NUL,
  wrongName,
} from './variables.ts';

/**
 * Has an AI agent work on something and checks what it did. The agent is a program that speaks the Agent Client Protocol
 * (agentclientprotocol.com); orc is its client.
 */
export interface AgentAction extends Variables {
  type: 'agent';
  /** The agent's command line, see `command-line.ts`. */
  agent: string;
  /** What the agent is told. The payload is given beside it and never becomes a part of it. */
  prompt: string;
  /** Git repository whose checkout is the agent's workspace; without it the workspace is an empty folder. */
  repo?: string;
  /** Branch, tag or commit to begin with. Default: the repository's default branch. */
  ref?: string;
  /** JSON pointer (RFC 6901) to the ref in the payload. Where the payload has none, `ref` counts. */
  refFrom?: string;
  /** Kinds of tools for which the agent gets permission when it asks. Default: {@link DEFAULT_ALLOWED_TOOLS}. */
  allow?: ToolKind[];
  /** Shell command that decides, in the workspace, whether the agent's work is accepted: exit code 0. */
  check?: string;
  /** How often the check runs at most. Its output goes back to the agent in between. Default: {@link CHECK_ATTEMPTS}. */
  checkAttempts?: number;
  /** Files and folders of the repository that are as they were before the check runs. */
  protect: string[];
  /** Branch that the worker pushes the agent's work to after the check; may contain `{runId}` and `{automation}`. */
  push?: string;
  /** Names of the worker's variables that its git gets and the agent does not. */
  gitEnv: string[];
  /** USD that an attempt may cost, as the agent reports it. */
  maxCost?: number;
  /** USD that the automation's runs may cost on one day (UTC), as their agents report it. */
  maxCostPerDay?: number;
  /** Command line before that of the agent and of the check: a sandbox. */
  wrap?: string;
}

export const AGENT_END_REASONS = [
  'check_passed',
  'check_failed',
  'agent_stopped',
  'agent_failed',
  'max_cost',
  'git_missing',
  'repo_unavailable',
  'ref_not_found',
  'workspace_failed',
  'push_rejected',
  'result_too_large',
] as const;

/** The kinds of tools of the Agent Client Protocol, version 1 (`ToolKind`). */
export const TOOL_KINDS = [
  'read',
  'edit',
  'delete',
  'move',
  'search',
  'execute',
  'think',
  'fetch',
  'switch_mode',
  'other',
] as const;
export type ToolKind = (typeof TOOL_KINDS)[number];

/**
 * What an agent may do without being named: work in its workspace. `execute` is one of them, because an agent that cannot run
 * the tests is of little use, and the check executes what the agent wrote anyway. Not without being named: what brings in text
 * of strangers (`fetch`), what changes the agent's own rules (`switch_mode`), and tools of which nothing is known (`other`).
 */
export const DEFAULT_ALLOWED_TOOLS: readonly ToolKind[] = [
  'read',
  'edit',
  'delete',
  'move',
  'search',
  'execute',
  'think',
];

export const CHECK_ATTEMPTS = 3;
const MAX_CHECK_ATTEMPTS = 20;
const MAX_COST = 1_000_000;
/** In characters. */
export const MAX_PROMPT_LENGTH = 256 * 1024;

/** How much of a prompt is shown, in characters. */
const SHOWN_PROMPT = 60;

/** No options of git, no `ext::` and no transports that it could start programs with; see `problemOfRepository`. */
const REPOSITORY_PATTERN = '^((https?|ssh|git|file)://|/|[A-Za-z0-9][\\w.-]*@[\\w.-]+:)[^\\s\\u0000]+$';

const PATH_IN_WORKSPACE = '^(?!/)(?!(.*/)?\\.\\.(/|$))[^\\u0000]+$';

const command = Type.String({ minLength: 1, pattern: WITHOUT_NUL });

const fields = {
  agent: { ...command, description: 'Command line of an AI agent that speaks the Agent Client Protocol' },
  prompt: Type.String({
    minLength: 1,
    maxLength: MAX_PROMPT_LENGTH,
    description: 'The task of the agent; the payload is attached to it',
  }),
  promptFile: Type.String({
    minLength: 1,
    description: 'The file with the task of the agent, relative to this file',
  }),
  repo: Type.String({
    pattern: REPOSITORY_PATTERN,
    description: 'Git repository to check out as the workspace of the agent. Default: an empty folder',
  }),
  ref: Type.String({
    pattern: REF_PATTERN,
    description: 'Branch, tag or commit to check out. Default: the default branch',
  }),
  refFrom: Type.String({
    pattern: '^(/([^~/]|~[01])*)+$',
    description: 'JSON pointer to the branch, tag or commit in the payload. Where it has none, ref counts',
  }),
  allow: Type.Array(Type.Union(TOOL_KINDS.map((kind) => Type.Literal(kind))), {
    description: `Kinds of tools that the agent is permitted to use. Default: ${DEFAULT_ALLOWED_TOOLS.join(', ')}`,
  }),
  check: {
    ...command,
    description: 'Shell command in the workspace that decides whether the work of the agent is accepted',
  },
  checkAttempts: Type.Integer({
    minimum: 1,
    maximum: MAX_CHECK_ATTEMPTS,
    default: CHECK_ATTEMPTS,
    description: 'How often the check runs at most; its output goes back to the agent in between',
  }),
  protect: Type.Array(Type.String({ pattern: PATH_IN_WORKSPACE }), {
    description: 'Files and folders of the repository that are restored before the check runs',
  }),
  push: Type.String({
    minLength: 1,
    description: 'Branch to push the work of the agent to after the check, such as orc/{runId}',
  }),
  gitEnv: Type.Array(Type.String({ pattern: VARIABLE_NAME }), {
    description: "Names of the worker's variables for its git, which the agent does not get",
  }),
  maxCost: Type.Number({
    exclusiveMinimum: 0,
    maximum: MAX_COST,
    description: 'USD that an attempt may cost, as the agent reports it',
  }),
  maxCostPerDay: Type.Number({
    exclusiveMinimum: 0,
    maximum: MAX_COST,
    description: 'USD that the runs of a day (UTC) may cost; then the automation is paused',
  }),
  wrap: {
    ...command,
    description: 'Command line to put before that of the agent and of the check: a sandbox',
  },
  ...variableFields,
};

export const agent: ActionType<AgentAction, typeof fields> = {
  nouns: { one: 'an agent', many: 'agents' },
  fields,
  expected: {
    agent: "the command line of an agent, such as 'opencode acp'",
    prompt: `text of at most ${MAX_PROMPT_LENGTH} characters`,
    promptFile: 'the path of a file',
    repo: WHAT_A_REPOSITORY_IS,
    ref: 'a branch, a tag or a commit',
    refFrom: 'a JSON pointer into the payload, such as /ref',
    allow: `a list of: ${TOOL_KINDS.join(', ')}`,
    check: 'a shell command',
    checkAttempts: `a whole number from 1 to ${MAX_CHECK_ATTEMPTS}`,
    protect: 'a list of paths in the repository',
    push: 'the name of a branch, such as orc/{runId}',
    gitEnv: 'a list of variable names',
    maxCost: `an amount in USD above 0 and at most ${MAX_COST}`,
    maxCostPerDay: `an amount in USD above 0 and at most ${MAX_COST}`,
    wrap: 'a command line',
    ...EXPECTED_VARIABLES,
  },
  explain: (path, value) => {
    const [field = ''] = path;
    if (Object.hasOwn(variableFields, field)) return explainVariables(path, value);
    if (field === 'gitEnv' && typeof value === 'string') return { field, problem: wrongName(value) };
    return typeof value === 'string' && value.includes('\0') ? { field, problem: HAS_NUL } : undefined;
  },
  check: (entry) =>
    entry['agent'] === undefined ? [] : [...checkVariables(entry), ...problemsOfAgent(entry)],
  /** A repository's URL may hold a password, a prompt is long. */
  quote: (value) => (value.includes('@') ? undefined : maskUrls(value)),
  fromEntry: ({
    agent: commandLine = '',
    prompt = '',
    env = {},
    passEnv = [],
    protect = [],
    gitEnv = [],
    promptFile: _,
    ...others
  }) => ({
    type: 'agent',
    agent: commandLine,
    prompt,
    protect,
    gitEnv,
    env,
    passEnv,
    ...others,
  }),
  toEntry: ({ type: _, env, passEnv, protect, gitEnv, ...others }) => ({
    ...others,
    ...(protect.length > 0 && { protect }),
    ...(gitEnv.length > 0 && { gitEnv }),
    ...variablesToEntry({ env, passEnv }),
  }),
  describe: (action) => [
    ['agent', maskUrls(action.agent)],
    ['prompt', beginningOf(maskUrls(action.prompt))],
    ['wrapped in', action.wrap && maskUrls(action.wrap)],
    [
      'repository',
      action.repo === undefined ? 'none: an empty folder for each attempt' : maskUrl(action.repo),
    ],
    ['ref', describeRef(action)],
    ['allowed tools', (action.allow ?? DEFAULT_ALLOWED_TOOLS).join(' ') || 'none'],
    ['check', action.check === undefined ? 'none: how the agent stops decides' : maskUrls(action.check)],
    ['check attempts', action.check && String(action.checkAttempts ?? CHECK_ATTEMPTS)],
    ['protected', action.protect.join(' ') || undefined],
    ['push to', action.push],
    ['git variables', action.gitEnv.join(' ') || undefined],
    ['max cost', describeCost(action)],
    ...describeVariables(action),
  ],
  masked: (action) => ({
    ...action,
    agent: maskUrls(action.agent),
    prompt: maskUrls(action.prompt),
    ...(action.repo !== undefined && { repo: maskUrl(action.repo) }),
    ...(action.check !== undefined && { check: maskUrls(action.check) }),
    ...(action.wrap !== undefined && { wrap: maskUrls(action.wrap) }),
  }),
  isSigned: false,
  secretsOf: (action, { environment }) => [
    ...secretsOfVariables(action, environment),
    ...action.gitEnv.map((name) => environment[name] ?? ''),
  ],
};

function describeRef({ repo, ref, refFrom }: AgentAction): string | undefined {
  if (repo === undefined) return undefined;
  const own = ref ?? 'the default branch';
  return refFrom === undefined ? own : `${refFrom} of the payload, or ${own}`;
}

function describeCost({ maxCost, maxCostPerDay }: AgentAction): string | undefined {
  const limits = [
    maxCost !== undefined && `${maxCost} USD per attempt`,
    maxCostPerDay !== undefined && `${maxCostPerDay} USD per day`,
  ].filter((limit) => limit !== false);
  return limits.length === 0 ? undefined : `${limits.join(', ')}, if the agent reports its cost`;
}

function beginningOf(text: string): string {
  const [line = ''] = text.trim().split('\n');
  return line.length < text.trim().length || line.length > SHOWN_PROMPT
    ? `${line.slice(0, SHOWN_PROMPT)}…`
    : line;
}
