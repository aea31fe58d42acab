/** A URL in a text. */
const URL_IN_TEXT = /\b[a-z][a-z\d+.-]*:\/\/[^\s'"<>]+/gi;

/** A URL for people and logs: user name, password, query values and fragment are masked, because they may be secrets. */
export function maskUrl(url: string): string {
  const [beforeFragment = '', ...fragment] = url.split('#');
  const [base = '', ...query] = beforeFragment.split('?');
  const masked = base.replace(/^([a-z][a-z\d+.-]*:\/\/)[^/]*@/i, '$1***@');
  const parameters = query.join('?').split('&').map(maskParameter).join('&');
  return `${masked}${query.length > 0 ? `?${parameters}` : ''}${fragment.length > 0 ? '#***' : ''}`;
}

/** A text with its URLs masked. */
export function maskUrls(text: string): string {
  return text.replace(URL_IN_TEXT, maskUrl);
}

/** A parameter without a name is a value. */
function maskParameter(parameter: string): string {
  const [name = '', ...value] = parameter.split('=');
  if (value.length === 0) return name === '' ? '' : '***';
  return value.join('=') === '' ? parameter : `${name}=***`;
}
