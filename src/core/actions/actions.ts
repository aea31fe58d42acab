import type { ActionType } from './action-type.ts';
import { type CommandAction, type CommandEndReason, command } from './command.ts';
import { type HttpAction, type HttpEndReason, http } from './http.ts';

export type Action = CommandAction | HttpAction;

/** Why an attempt ended, as far as only actions of one type can. */
export type ActionEndReason = CommandEndReason | HttpEndReason;

/** The types of actions, by the `type` of their actions. */
export const ACTION_TYPES: Readonly<Record<string, ActionType>> = { command, http } satisfies Record<
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
