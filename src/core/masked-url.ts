/** A URL in a text. */
const URL_IN_TEXT = /\b[a-z][a-z\d+.-]*:\/\/[^\s'"<>]+/gi;

const HTTP_ORIGIN = /^https?:\/\/[^/]*/i;

/** A UUID, or 16 or more letters and digits. */
const RANDOM = /[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}|(?=\w*\d)(?=\w*[a-z])\w{16,}/i;

/**
 * A URL for people and logs: user name, password, query values, fragment and random segments of an HTTP path are masked, because
 * they may be secrets.
 */
export function maskUrl(url: string): string {
  return maskParts(url, (path) => path.split('/').map(maskRandom).join('/'));
}

/**
 * A URL that orc sends something to, for people and logs. Whoever knows the URL of a chat's webhook may post there, so that
 * of its path only the first segment is shown.
 */
export function maskReceiverUrl(url: string): string {
  return maskParts(url, (path) => {
    const [, first = '', rest = ''] = /^\/([^/]*)(?:\/(.+))?/.exec(path) ?? [];
    return rest === '' ? path.replace(first, maskRandom) : `/${maskRandom(first)}/***`;
  });
}

/** A text with its URLs masked. */
export function maskUrls(text: string): string {
  return text.replace(URL_IN_TEXT, maskUrl);
}

/** What {@link maskReceiverUrl} hides of a path, as a whole and its random segments. */
export function secretPathParts(url: string): string[] {
  const segments = new URL(url).pathname.slice(1).split('/');
  return [segments.slice(1).join('/'), ...segments.filter((segment) => RANDOM.test(segment))];
}

function maskParts(url: string, maskPath: (path: string) => string): string {
  const [beforeFragment = '', ...fragment] = url.split('#');
  const [base = '', ...query] = beforeFragment.split('?');
  const [origin = ''] = HTTP_ORIGIN.exec(base) ?? [];
  const path = origin === '' ? base : `${origin}${maskPath(base.slice(origin.length))}`;
  const masked = path.replace(/^([a-z][a-z\d+.-]*:\/\/)[^/]*@/i, '$1***@');
  const parameters = query.join('?').split('&').map(maskParameter).join('&');
  return `${masked}${query.length > 0 ? `?${parameters}` : ''}${fragment.length > 0 ? '#***' : ''}`;
}

function maskRandom(segment: string): string {
  return RANDOM.test(segment) ? '***' : segment;
}

/** A parameter without a name is a value. */
function maskParameter(parameter: string): string {
  const [name = '', ...value] = parameter.split('=');
  if (value.length === 0) return name === '' ? '' : '***';
  return value.join('=') === '' ? parameter : `${name}=***`;
}
