/** A URL's scheme, user name and password, host and rest. */
const REPOSITORY_URL = /^(https?|ssh|git|file):\/\/([^/@]*@)?([^/?#]*)(\/[^?#\s]*)$/i;

/** The form `git@example.com:path` of SSH. */
const SCP_FORM = /^[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\s:?#-][^\s?#]*$/;

/** The id of a commit, by SHA-1 or SHA-256. */
const COMMIT = /^([0-9a-f]{40}|[0-9a-f]{64})$/;

/** What is expected of a repository, for messages. */
export const WHAT_A_REPOSITORY_IS =
  'the URL of a git repository (https, http, ssh, git or file), user@host:path or an absolute path';

/**
 * What is wrong with the address of a git repository; continues "it …". A user name is accepted with SSH only: elsewhere it
 * may be a token. Other transports (`ext::` runs commands) and a query, which may hold a token, are refused.
 *
 * @returns undefined if nothing is wrong
 */
export function problemOfRepository(address: string): string | undefined {
  if (/[\p{Cc}]/u.test(address)) return 'contains a control character';
  if (SCP_FORM.test(address) || address.startsWith('/')) return undefined;
  const [, scheme = '', user = '', host = ''] = REPOSITORY_URL.exec(address) ?? [];
  if (scheme === '') return `is not ${WHAT_A_REPOSITORY_IS}`;
  const isSsh = scheme.toLowerCase() === 'ssh';
  if (user.includes(':') || (user !== '' && !isSsh)) {
    return 'contains a user name or password; give them to git on the worker, see docs/agents.md';
  }
  if (/^-|^$/.test(host) && scheme.toLowerCase() !== 'file') return 'names no host';
  if (user.startsWith('-')) return 'contains a user name that begins with a dash';
  return undefined;
}

/** Whether a text is the full id of a commit: 40 or 64 lower-case hexadecimal digits. */
export function isCommitId(text: string): boolean {
  return COMMIT.test(text);
}

/** Whether a text is the path of a file or folder in a workspace: relative, within it, and none of git's own. */
export function isWorkspacePath(text: string): boolean {
  if (text.length === 0 || text.length > 4096 || text.includes('\0')) return false;
  return text
    .replace(/\/$/, '')
    .split('/')
    .every((part) => part !== '' && part !== '.' && part !== '..' && part.toLowerCase() !== '.git');
}
