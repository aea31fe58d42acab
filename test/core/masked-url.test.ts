import { expect, test } from 'vitest';
import { maskUrl, maskUrls } from '../../src/core/masked-url.ts';

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
])('%s is shown as %s', (url, shown) => {
  expect(maskUrl(url)).toBe(shown);
});

test('in a text, URLs are masked and the rest stays', () => {
  expect(maskUrls('--url=https://u:p@example.com/?t=s3cret, then a?b=c "http://x/#y"')).toBe(
    '--url=https://***@example.com/?t=*** then a?b=c "http://x/#***"',
  );
});
