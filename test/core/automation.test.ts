import { expect, test } from 'vitest';
import { isSlug, SLUG_MAX_LENGTH } from '../../src/core/automation.ts';

test.each(['a', '7', 'deploy', 'nightly-report', 'v2-0-1', 'a-b-c-d', 'x'.repeat(SLUG_MAX_LENGTH)])(
  '%j is a slug',
  (value) => {
    expect(isSlug(value)).toBe(true);
  },
);

test.each([
  '',
  '-',
  '-deploy',
  'deploy-',
  'nightly--report',
  'Deploy',
  'nightly report',
  'nightly_report',
  'a.b',
  'a/b',
  'a:b',
  '../a',
  'a%2Fb',
  'déploy',
  'deploy\n',
  '{orc}',
  '*',
  'x'.repeat(SLUG_MAX_LENGTH + 1),
])('%j is not a slug', (value) => {
  expect(isSlug(value)).toBe(false);
});
