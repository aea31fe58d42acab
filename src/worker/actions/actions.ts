import type { ExecutableAutomation } from '../../store/automations.ts';
import type { WorkFolders } from '../work-folders.ts';
import type { Actions } from './action.ts';
import { runCommand, secretsOfCommand } from './command.ts';
import { deliverToUrl, secretsOfDelivery } from './http.ts';
import type { ReceiverAddresses } from './receiver-addresses.ts';

export interface ActionSettings {
  workerEnvironment: Readonly<NodeJS.ProcessEnv>;
  workFolders: WorkFolders;
  addresses: ReceiverAddresses;
  version: string;
}

/** The action types that there are. */
export function openActions({ workerEnvironment, workFolders, addresses, version }: ActionSettings): Actions {
  return {
    perform: async ({ action, signingSecret = '' }, context) =>
      action.type === 'command'
        ? runCommand(action, { workerEnvironment, workFolders }, context)
        : deliverToUrl(action, { signingSecret, addresses, version }, context),
    secretsOf: ({ action, signingSecret = '' }: ExecutableAutomation) =>
      action.type === 'command'
        ? secretsOfCommand(action, workerEnvironment)
        : secretsOfDelivery(action, signingSecret),
  };
}
