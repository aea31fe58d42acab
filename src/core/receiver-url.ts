import type { FieldProblem } from './actions/action-type.ts';
import { maskReceiverUrl } from './masked-url.ts';

/** Of a URL that orc sends something to. */
export const RECEIVER_URL_PATTERN = '^https?://[^/?#@\\s]+([/?#]\\S*)?$';

export const WHAT_A_RECEIVER_URL_IS = 'an http or https URL without a user name or password';

/** What the pattern misses. @param field the one that holds the URL */
export function problemsOfReceiverUrl(field: string, url: unknown): FieldProblem[] {
  if (url === undefined || URL.canParse(String(url))) return [];
  return [{ path: [field], field, problem: `must be ${WHAT_A_RECEIVER_URL_IS}` }];
}

/** A wrong URL as a message may repeat it; undefined if it may hold a password. */
export function quotableUrl(url: string): string | undefined {
  return url.includes('@') ? undefined : maskReceiverUrl(url);
}
