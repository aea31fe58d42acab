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
  failedRuns,
  rejections,
  agentCost,
  runCounts,
  runLog,
  result,
  keptWithRun,
  artifacts,
  eventQueue,
  eventBodies,
  eventTries,
  loginLink,
  session,
  sessionsOf,
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
  failedRuns('deploy'),
  rejections('deploy'),
  agentCost('deploy', '2026-01-02'),
  runCounts('488888'),
  runLog('deploy'),
  result('deploy'),
  artifacts('deploy'),
  eventQueue('deploy', 'onEnd'),
  eventBodies('deploy', 'onEnd'),
  eventTries('deploy', 'onEnd'),
  loginLink('hash'),
  session('hash'),
  sessionsOf('ada'),
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
