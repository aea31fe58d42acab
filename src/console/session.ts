/** How the console's cookie is read and written (RFC 6265bis). */

/** Under https, browsers take a cookie with this prefix from this very host and over TLS only. */
const HOST_PREFIX = '__Host-';

const NAME = 'orc_session';

/** @param url the console's origin */
function cookieName(url: string): string {
  return isSecure(url) ? `${HOST_PREFIX}${NAME}` : NAME;
}

/** The session's token in a Cookie header. Of two cookies of the name, the first counts. */
export function sessionToken(url: string, header: string | undefined): string | undefined {
  const name = `${cookieName(url)}=`;
  const pair = header?.split(';').find((each) => each.trim().startsWith(name));
  return pair?.trim().slice(name.length);
}

/** A Set-Cookie header that begins a session. Lax: a link that a colleague has sent opens. */
export function sessionCookie(url: string, token: string, maxAgeMs: number): string {
  return `${cookieName(url)}=${token}; Path=/; Max-Age=${Math.floor(maxAgeMs / 1000)}; HttpOnly; SameSite=Lax${isSecure(url) ? '; Secure' : ''}`;
}

/** A Set-Cookie header that ends it. */
export function endedCookie(url: string): string {
  return sessionCookie(url, '', 0);
}

function isSecure(url: string): boolean {
  return url.startsWith('https:');
}
