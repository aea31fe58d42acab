import { Type } from '@sinclair/typebox';
import { maskUrl } from '../masked-url.ts';
import type { ActionType } from './action-type.ts';

/** POSTs the payload to a URL, signed as Standard Webhooks describes. */
export interface HttpAction {
  type: 'http';
  url: string;
}

export type HttpEndReason = 'http_status' | 'network_error';

const fields = {
  url: Type.String({
    pattern: '^https?://[^/?#@\\s]+([/?#]\\S*)?$',
    description: 'Deliver the payload to this URL instead of running a command',
  }),
};

const EXPECTED = 'an http or https URL without a user name or password';

export const http: ActionType<HttpAction, typeof fields> = {
  nouns: { one: 'a URL', many: 'URLs' },
  fields,
  expected: { url: EXPECTED },
  check: ({ url }) =>
    url === undefined || URL.canParse(String(url))
      ? []
      : [{ path: ['url'], field: 'url', problem: `must be ${EXPECTED}` }],
  quote: (url) => (url.includes('@') ? undefined : maskUrl(url)),
  fromEntry: ({ url = '' }) => ({ type: 'http', url }),
  toEntry: ({ url }) => ({ url }),
  describe: ({ url }) => [['url', maskUrl(url)]],
  masked: (action) => ({ ...action, url: maskUrl(action.url) }),
  isSigned: true,
  /**
   * The key of the signing secret, which is known with and without the prefix that says what it is, and the values in the
   * URL's query, decoded and as they stand there.
   */
  secretsOf: ({ url }, { signingSecret = '' }) => {
    if (!URL.canParse(url)) return [];
    const { search, searchParams } = new URL(url);
    const encoded = search.split('&').map((pair) => pair.slice(pair.indexOf('=') + 1));
    return [signingSecret.replace(/^whsec_/, ''), ...encoded, ...searchParams.values()];
  },
};
