import { Type } from '@sinclair/typebox';
import { maskReceiverUrl, secretPathParts } from '../masked-url.ts';
import {
  problemsOfReceiverUrl,
  quotableUrl,
  RECEIVER_URL_PATTERN,
  WHAT_A_RECEIVER_URL_IS,
} from '../receiver-url.ts';
import type { ActionType } from './action-type.ts';

/** POSTs the payload to a URL, signed as Standard Webhooks describes. */
export interface HttpAction {
  type: 'http';
  url: string;
}

export const HTTP_END_REASONS = ['http_status', 'network_error'] as const;

const fields = {
  url: Type.String({
    pattern: RECEIVER_URL_PATTERN,
    description: 'Deliver the payload to this URL instead of running a command',
  }),
};

export const http: ActionType<HttpAction, typeof fields> = {
  nouns: { one: 'a URL', many: 'URLs' },
  fields,
  expected: { url: WHAT_A_RECEIVER_URL_IS },
  check: ({ url }) => problemsOfReceiverUrl('url', url),
  quote: quotableUrl,
  fromEntry: ({ url = '' }) => ({ type: 'http', url }),
  toEntry: ({ url }) => ({ url }),
  describe: ({ url }) => [['url', maskReceiverUrl(url)]],
  masked: (action) => ({ ...action, url: maskReceiverUrl(action.url) }),
  isSigned: true,
  /** The values in the URL's query, decoded and as they stand there, and what is hidden of its path. */
  secretsOf: ({ url }) => {
    if (!URL.canParse(url)) return [];
    const { search, searchParams } = new URL(url);
    const encoded = search.split('&').map((pair) => pair.slice(pair.indexOf('=') + 1));
    return [...encoded, ...searchParams.values(), ...secretPathParts(url)];
  },
};
