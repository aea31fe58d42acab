import { expect, test } from 'vitest';
import { createAutomation, openTestStore } from '../support/store.ts';

const store = openTestStore();

test('costs add up over a day for each automation, and the sum expires', async () => {
  const { agentCosts, redis, keys } = store;
  expect(await agentCosts.add('a', 0.1)).toBe(0.1);
  expect(await agentCosts.add('a', 0.25)).toBe(0.35);
  expect(await agentCosts.add('b', 0)).toBe(0);
  const day = new Date().toISOString().slice(0, 10);
  expect(await redis.ttl(keys.agentCost('b', day))).toBeGreaterThan(86_400);
});

test('why an automation was paused is known until it is resumed', async () => {
  await createAutomation(store, 'spent');
  const reasonOf = async () => (await store.automations.get('spent'))?.pauseReason;
  await store.automations.setPaused('spent', true, 'It has cost too much.');
  await store.automations.setPaused('spent', true, 'Another reason.');
  expect(await reasonOf()).toBe('It has cost too much.');
  await store.automations.setPaused('spent', false);
  await store.automations.setPaused('spent', true);
  expect(await reasonOf()).toBeUndefined();
});
