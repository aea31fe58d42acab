import { expect, test } from 'vitest';
import { maskReceiverUrl, maskUrl, maskUrls } from '../../src/core/masked-url.ts';

test.each([
  ['https://example.com/hook', 'https://example.com/hook'],
  ['https://example.com/hook?token=s3cret&empty=&b=1=2', 'https://example.com/hook?token=***&empty=&b=***'],
  ['https://example.com/hook?s3cret', 'https://example.com/hook?***'],
  ['https://example.com?', 'https://example.com?'],
  ['https://example.com?a=b?s3cret', 'https://example.com?a=***'],
  ['https://example.com/#s3cret', 'https://example.com/#***'],
  ['https://user:s3cret@example.com:8443/a@b', 'https://***@example.com:8443/a@b'],
  ['https://s3cret@example.com', 'https://***@example.com'],
  ['redis://:s3c@ret@127.0.0.1/0', 'redis://***@127.0.0.1/0'],
  ['example.com?token=s3cret', 'example.com?token=***'],
  ['https://github.com/acme/shop-2.git', 'https://github.com/acme/shop-2.git'],
  ['https://hc-ping.com/0195a2c4-7b1e-7f3a-8b1e-0195a2c47b1e/fail', 'https://hc-ping.com/***/fail'],
  [
    'https://api.telegram.org/bot1102:AAHdqTcvCH1vGWJxfSeo/send?a=b',
    'https://api.telegram.org/***/send?a=***',
  ],
  ['unix:///tmp/orc0123456789abcdef/redis', 'unix:///tmp/orc0123456789abcdef/redis'],
])('%s is shown as %s', (url, shown) => {
  expect(maskUrl(url)).toBe(shown);
});

test.each([
  ['https://hooks.slack.com/services/T/B/s3cret?a=b', 'https://hooks.slack.com/services/***?a=***'],
  ['https://hc-ping.com/0195a2c4-7b1e-7f3a-8b1e-0195a2c47b1e', 'https://hc-ping.com/***'],
  ['https://hc-ping.com/0195a2c4-7b1e-7f3a-8b1e-0195a2c47b1e/fail', 'https://hc-ping.com/***/***'],
  ['https://example.com/hook/', 'https://example.com/hook/'],
  ['http://example.com:8080', 'http://example.com:8080'],
  ['not a URL', 'not a URL'],
])('of the receiver %s, what may be secret in its path is hidden: %s', (url, shown) => {
  expect(maskReceiverUrl(url)).toBe(shown);
});

test('in a text, URLs are masked and the rest stays', () => {
  expect(maskUrls('--url=https://u:p@example.com/?t=s3cret, then a?b=c "http://x/#y"')).toBe(
    '--url=https://***@example.com/?t=*** then a?b=c "http://x/#***"',
  );
});
