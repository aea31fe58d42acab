import { expect, test } from 'vitest';
import { formatBytes } from '../../src/core/bytes.ts';

test.each([
  [0, '0 bytes'],
  [1023, '1023 bytes'],
  [1024, '1.0 KiB'],
  [1_500_000, '1.4 MiB'],
  [1_073_741_824, '1.0 GiB'],
])('%i bytes are %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});
