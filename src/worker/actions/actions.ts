import { ACTION_TYPES, type Action, unknownType } from '../../core/actions/actions.ts';
import type { AttemptResult } from '../../core/run.ts';
import type { ExecutableAutomation } from '../../store/automations.ts';
import type { ActionContext, ActionSettings, Performer } from './action.ts';
import { openAgents } from './agent/agent.ts';
import { openCommands } from './command.ts';
import { openDeliveries } from './http.ts';

/** What executes actions, by their `type`. */
export const PERFORMERS: Readonly<Record<string, (settings: ActionSettings) => Performer>> = {
  command: openCommands,
  agent: openAgents,
  http: openDeliveries,
} satisfies Record<Action['type'], unknown>;

/** What automations do, whatever the type of their action. */
export interface Actions {
  perform(automation: ExecutableAutomation, context: ActionContext): Promise<AttemptResult | 'interrupted'>;
  /** What the action is given and nobody may read in what it prints. */
  secretsOf(automation: ExecutableAutomation): string[];
}

export function openActions(settings: ActionSettings): Actions {
  const performers = new Map(Object.entries(PERFORMERS).map(([type, open]) => [type, open(settings)]));
  const { environment } = settings;
  return {
    perform: async ({ action, signingSecrets }, context) => {
      const performer = performers.get(action.type) ?? unknownType(action);
      return performer.perform(action, { ...context, signingSecrets });
    },
    secretsOf: ({ action, signingSecrets }) => [
      // Known with and without the prefix that says what they are.
      ...signingSecrets.map((secret) => secret.replace(/^whsec_/, '')),
      ...(ACTION_TYPES[action.type]?.secretsOf(action, { environment }) ?? []),
    ],
  };
}
