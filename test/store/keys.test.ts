import { expect, test } from 'vitest';
import { createKeys } from '../../src/store/keys.ts';

const {
  queuePrefix,
  automation,
  idempotency,
  rateWindow,
  lane,
  laneRunning,
  openRuns,
  endedRuns,
  rejections,
  runLog,
  ...fixed
} = createKeys('shop');
const names = [
  automation('deploy'),
  idempotency('deploy', 'hash'),
  rateWindow('deploy'),
  lane('deploy'),
  laneRunning('deploy'),
  openRuns('deploy'),
  endedRuns('deploy'),
  rejections('deploy'),
  runLog('deploy'),
  ...Object.values(fixed),
];

test('every key begins with the prefix as a hash tag, so that a Redis Cluster keeps them in one slot', () => {
  expect(queuePrefix).toBe('{shop}');
  for (const name of names) expect(name.startsWith('{shop}:')).toBe(true);
});

test('no key is another one, or one of the queue', () => {
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) expect(name.startsWith('{shop}:runs')).toBe(false);
});
