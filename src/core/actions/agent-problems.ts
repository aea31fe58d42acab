import { wordsOf } from '../command-line.ts';
import { isWorkspacePath, problemOfRepository } from '../git-names.ts';
import { branchOf, isRefName } from '../ref-name.ts';
import type { FieldProblem } from './action-type.ts';

type Entry = Readonly<Record<string, unknown>>;
type Problem = [field: string, problem: string];

/** Fields that say nothing without another one. */
const NEEDED: readonly [field: string, needed: string, noun: string][] = [
  ['ref', 'repo', 'a repository (repo)'],
  ['refFrom', 'repo', 'a repository (repo)'],
  ['protect', 'repo', 'a repository (repo)'],
  ['push', 'repo', 'a repository (repo)'],
  ['gitEnv', 'repo', 'a repository (repo)'],
  ['checkAttempts', 'check', 'a check'],
  ['protect', 'check', 'a check'],
];

/** What the schemas of an agent's fields miss. */
export function problemsOfAgent(entry: Entry): FieldProblem[] {
  return [
    ...problemsOfCommandLine('agent', entry),
    ...problemsOfCommandLine('wrap', entry),
    ...problemsOfPrompt(entry),
    ...problemsOfNeeded(entry),
    ...problemsOfGit(entry),
  ].map(([field, problem]) => ({ path: [field], field, problem }));
}

function problemsOfCommandLine(field: string, entry: Entry): Problem[] {
  const commandLine = entry[field];
  if (typeof commandLine !== 'string') return [];
  const words = wordsOf(commandLine);
  if (words === undefined) return [[field, 'has a quote that is not closed']];
  return words[0] ? [] : [[field, 'names no program']];
}

function problemsOfPrompt({ prompt, promptFile }: Entry): Problem[] {
  if (prompt === undefined && promptFile === undefined) return [['agent', 'needs a prompt']];
  return prompt === undefined || promptFile === undefined
    ? []
    : [['promptFile', 'cannot be combined with a prompt']];
}

function problemsOfNeeded(entry: Entry): Problem[] {
  return NEEDED.filter(([field, needed]) => entry[field] !== undefined && entry[needed] === undefined).map(
    ([field, , noun]) => [field, `needs ${noun}`],
  );
}

function problemsOfGit({ repo, ref, push, protect = [], gitEnv = [], passEnv = [], env }: Entry): Problem[] {
  const problems: Problem[] = [];
  const repoProblem = typeof repo === 'string' ? problemOfRepository(repo) : undefined;
  if (repoProblem !== undefined) problems.push(['repo', repoProblem]);
  const wrongPath = [protect].flat().find((path) => typeof path === 'string' && !isWorkspacePath(path));
  if (wrongPath !== undefined) problems.push(['protect', 'must be paths in the repository']);
  if (typeof ref === 'string' && !isRefName(ref)) {
    problems.push(['ref', 'must be a branch, a tag or a commit']);
  }
  if (typeof push === 'string' && !isRefName(branchOf(push, { id: 'id', automation: 'slug' }))) {
    problems.push(['push', 'must be the name of a branch, such as orc/{runId}']);
  }
  if (typeof push === 'string' && push === ref) {
    problems.push(['push', 'must be another branch than the one that the agent begins with']);
  }
  const given = [passEnv, Object.keys(env instanceof Object ? env : {})].flat();
  const both = [gitEnv].flat().filter((name) => given.includes(name));
  if (both.length > 0) problems.push(['gitEnv', `names what the agent gets as well: ${both.join(', ')}`]);
  return problems;
}
