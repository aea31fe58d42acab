import type { AgentAction } from '../../src/core/actions/agent.ts';
import { ROOT } from './repository.ts';
import type { Script, Step } from './scripted-agent.ts';

/** The command line of the scripted agent. Made before the tests, see `global-setup.ts`. */
export const SCRIPTED_AGENT = `'${process.execPath}' '${ROOT}.test/scripted-agent.js'`;

/** An action whose agent does this, in one turn after the other. */
export function scriptedAgent(
  turns: Step[][],
  changes: Partial<AgentAction> = {},
  script: Omit<Script, 'turns'> = {},
): AgentAction {
  return {
    ...{ type: 'agent', agent: SCRIPTED_AGENT, prompt: 'Do it.', protect: [], gitEnv: [], passEnv: [] },
    ...changes,
    env: { AGENT_SCRIPT: JSON.stringify({ ...script, turns }), ...changes.env },
  };
}
