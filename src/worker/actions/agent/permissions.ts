import type { RequestPermissionRequest, RequestPermissionResponse } from '@agentclientprotocol/sdk';

/** What an agent is answered when it asks for permission: for this time only, so that nothing else is permitted with it. */
export function answerPermission(
  { options }: Pick<RequestPermissionRequest, 'options'>,
  isAllowed: boolean,
): RequestPermissionResponse {
  const wanted = isAllowed ? ['allow_once', 'allow_always'] : ['reject_once', 'reject_always'];
  const option = wanted.map((kind) => options.find((each) => each.kind === kind)).find(Boolean);
  return { outcome: option ? { outcome: 'selected', optionId: option.optionId } : { outcome: 'cancelled' } };
}
