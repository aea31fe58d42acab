import { expect, test } from 'vitest';
import { acceptRun, createTriggered, FAILED, startConsumer } from '../support/runs.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const store = openTestStore();

test('a survey has the state and the counts of every automation, and deleted ones whose runs are kept', async () => {
  const failing = await createTriggered(store, 'b-failing');
  await createAutomation(store, 'c-disabled', { enabled: false });
  await createAutomation(store, 'd-paused');
  await store.automations.setPaused('d-paused', true);
  const gone = await createTriggered(store, 'e-gone');
  const since = new Date();
  await acceptRun(store, failing);
  await acceptRun(store, gone);
  startConsumer(store, async () => FAILED);
  const failed = async () => (await store.survey.read(since)).map((each) => each.failed);
  await expect.poll(failed).toEqual([1, 0, 0, 1]);
  await store.automations.delete('e-gone');
  expect(await store.survey.read(since)).toEqual([
    { slug: 'b-failing', state: 'enabled', open: 0, ended: 1, failed: 1 },
    { slug: 'c-disabled', state: 'disabled', open: 0, ended: 0, failed: 0 },
    { slug: 'd-paused', state: 'paused', open: 0, ended: 0, failed: 0 },
    { slug: 'e-gone', state: 'deleted', open: 0, ended: 1, failed: 1 },
  ]);
  expect((await store.survey.read(new Date(Date.now() + 60_000))).map((each) => each.failed)).toEqual([
    0, 0, 0, 0,
  ]);
});

test('a survey of very many automations has each once', async () => {
  const slugs = Array.from({ length: 1234 }, (_, index) => `many-${String(index).padStart(4, '0')}`);
  const { redis, keys } = store;
  await redis.zadd(keys.automations, ...slugs.flatMap((slug) => [0, slug]));
  await Promise.all(slugs.map((slug) => redis.hset(keys.automation(slug), { enabled: 1 })));
  const found = (await store.survey.read(new Date())).map(({ slug }) => slug);
  expect(found.filter((slug) => slug.startsWith('many-'))).toEqual(slugs);
});
