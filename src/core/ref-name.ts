/** A name for `git check-ref-format`, without what only that rejects; see {@link isRefName}. */
export const REF_PATTERN = '^[^-/\\s\\u0000-\\u001f~^:?*\\[\\\\][^\\s\\u0000-\\u001f~^:?*\\[\\\\]*$';

/**
 * Whether a text may name a branch, a tag or a commit (`git check-ref-format`): never an option of git, a range or an
 * expression.
 */
export function isRefName(text: string): boolean {
  return (
    new RegExp(REF_PATTERN).test(text) &&
    text.length <= 250 &&
    text !== '@' &&
    !/\.\.|@\{|\/\/|\/$|\.$|\.lock(\/|$)|\/\./.test(text) &&
    !text.startsWith('.')
  );
}

/** The branch that a run's work is pushed to. */
export function branchOf(push: string, { id, automation }: { id: string; automation: string }): string {
  return push.replaceAll('{runId}', id).replaceAll('{automation}', automation);
}
