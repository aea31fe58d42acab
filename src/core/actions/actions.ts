import type { ActionType } from './action-type.ts';
import { AGENT_END_REASONS, type AgentAction, agent } from './agent.ts';
import { COMMAND_END_REASONS, type CommandAction, command } from './command.ts';
import { HTTP_END_REASONS, type HttpAction, http } from './http.ts';

export type Action = CommandAction | AgentAction | HttpAction;

/** Why an attempt ended, as far as only actions of one type can. */
export const ACTION_END_REASONS = [
  ...COMMAND_END_REASONS,
  ...AGENT_END_REASONS,
  ...HTTP_END_REASONS,
] as const;

/** The types of actions, by the `type` of their actions. */
export const ACTION_TYPES: Readonly<Record<string, ActionType>> = { command, agent, http } satisfies Record<
  Action['type'],
  ActionType
>;

/** @throws when a newer version of orc stored the action */
export function actionTypeOf(action: { type: string }): ActionType {
  return ACTION_TYPES[action.type] ?? unknownType(action);
}

export function unknownType({ type }: { type: string }): never {
  throw new Error(`this version of orc has no actions of the type '${type}'; use a newer one`);
}
