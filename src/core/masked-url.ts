/** A URL in a text: a scheme, and what belongs to it. */
const URL_IN_TEXT = /\b[a-z][a-z\d+.-]*:\/\/[^\s'"<>]+/gi;

/**
 * A URL without what may be a secret in it, for people and logs: user name and password, the values of its query and its
 * fragment.
 */
export function maskUrl(url: string): string {
  const [beforeFragment = '', ...fragment] = url.split('#');
  const [base = '', ...query] = beforeFragment.split('?');
  const masked = base.replace(/^([a-z][a-z\d+.-]*:\/\/)[^/]*@/i, '$1***@');
  const parameters = query.join('?').split('&').map(maskParameter).join('&');
  return `${masked}${query.length > 0 ? `?${parameters}` : ''}${fragment.length > 0 ? '#***' : ''}`;
}

/** A text without what may be a secret in the URLs in it. */
export function maskUrls(text: string): string {
  return text.replace(URL_IN_TEXT, maskUrl);
}

/** One that has no name is a value. */
function maskParameter(parameter: string): string {
  const [name = '', ...value] = parameter.split('=');
  if (value.length === 0) return name === '' ? '' : '***';
  return value.join('=') === '' ? parameter : `${name}=***`;
}
