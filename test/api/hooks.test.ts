import { beforeAll, beforeEach, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { openTestApp, trigger } from '../support/app.ts';
import { createAutomation } from '../support/store.ts';

const { app, store } = openTestApp();

/** The steps that requests have reached, with the number of runs that were queued by then. */
let steps: string[] = [];
const reach = async (step: string) => void steps.push(`${step} ${await store.runs.countQueued()}`);

for (const step of ['onRequest', 'preValidation', 'onResponse'] as const)
  app.addHook(step, async () => reach(step));
app.addHook('preParsing', async () => reach('preParsing'));
app.addHook('onSend', async () => reach('onSend'));
app.addHook('onRoute', (route) => {
  const checks = [route.preHandler ?? []].flat();
  route.preHandler = [
    async () => reach('before the check'),
    ...checks,
    async () => reach('behind the check'),
  ];
});

let key = '';
beforeAll(async () => {
  key = await createAutomation(store, 'ordered');
});
beforeEach(() => {
  steps = [];
});

/** Sends a trigger; returns the steps that it has reached, once it is over. */
async function stepsOf(apiKey: string | undefined, body: string): Promise<string[]> {
  await app.inject(trigger('ordered', apiKey, body));
  await expect.poll(() => steps.at(-1), { interval: 1 }).toMatch(/^onResponse/);
  return steps;
}

const READ = ['onRequest', 'preParsing', 'preValidation', 'before the check'];
const at = (runs: number, ...names: string[]) => names.map((name) => `${name} ${runs}`);

test('a request without a key is refused before its body is read', async () => {
  expect(await stepsOf(undefined, '{}')).toEqual(at(0, 'onSend', 'onResponse'));
});

test('a request whose key is wrong is refused once it was read, and before the handler', async () => {
  expect(await stepsOf(mintApiKey(), '{}')).toEqual(at(0, ...READ, 'onSend', 'onResponse'));
});

test('a request whose body is wrong is refused by the same check', async () => {
  expect(await stepsOf(key, '[]')).toEqual(at(0, ...READ, 'onSend', 'onResponse'));
});

test('nothing before the handler has a side effect', async () => {
  const expected = [...at(0, ...READ, 'behind the check'), ...at(1, 'onSend', 'onResponse')];
  expect(await stepsOf(key, '{}')).toEqual(expected);
});
