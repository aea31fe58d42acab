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

/** A newer version of orc stored the action. */
export class UnknownActionError extends Error {
  override name = 'UnknownActionError';

  constructor(type: string) {
    super(`this version of orc has no actions of the type '${type}'; use a newer one`);
  }
}

/** @throws UnknownActionError */
export function actionTypeOf({ type }: { type: string }): ActionType {
  const found = ACTION_TYPES[type];
  if (!found) throw new UnknownActionError(type);
  return found;
}
