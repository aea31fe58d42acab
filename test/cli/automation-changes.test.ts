import { expect, test } from 'vitest';
import { changeAutomation, changesFrom, UNSET_NAMES } from '../../src/cli/automation-changes.ts';
import type { AutomationOptions } from '../../src/cli/automation-options.ts';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const store = openTestStore();
const { automations } = store;

const set = (slug: string, options: AutomationOptions, command: string[] = [], unset: string[] = []) =>
  changeAutomation(store, slug, changesFrom(command, options, unset, '/'));

const EVERYTHING: Partial<AutomationDefinition> = {
  name: 'Deployment',
  enabled: false,
  action: {
    type: 'command',
    argv: ['deploy', 'a b'],
    cwd: '/srv',
    env: { A: '1', B: '2' },
    passEnv: ['TOKEN', 'OTHER'],
  },
  timeoutMs: 90_000,
  attempts: 3,
  concurrency: 2,
  rate: { limit: 60, windowMs: 60_000 },
  keepRuns: 50,
  onWorkerLoss: 'fail',
  whenBusy: 'skip',
  onEnd: 'https://example.com/end',
  onFailure: 'https://example.com/failure',
  schema: { type: 'object', required: ['ref'] },
};

test('what is not named stays as it is, key, age and variables included', async () => {
  const apiKey = await createAutomation(store, 'kept', EVERYTHING);
  const before = await automations.get('kept');
  const done = await set('kept', { timeout: '5m' });
  expect(done).toEqual({ changed: [{ field: 'timeout', from: '90s', to: '5m' }] });
  expect(await automations.get('kept')).toEqual({
    ...before,
    timeoutMs: 300_000,
    updatedAt: expect.any(Date),
  });
  expect((await automations.authenticate('kept', apiKey)).status).toBe('disabled');
});

test('every option that can be unset has its default again, and nothing of it stays in Redis', async () => {
  await createAutomation(store, 'unset', EVERYTHING);
  await set('unset', {}, [], [...UNSET_NAMES]);
  expect(Object.keys(await store.redis.hgetall(store.keys.automation('unset'))).sort()).toEqual([
    ...[
      'action',
      'attempts',
      'createdAt',
      'enabled',
      'id',
      'keyCreatedAt',
      'keyHash',
      'name',
      'onWorkerLoss',
    ],
    'updatedAt',
  ]);
  const { id, createdAt, updatedAt, keyCreatedAt, ...definition } = (await automations.get('unset')) ?? {};
  expect(definition).toEqual({
    slug: 'unset',
    name: '',
    enabled: true,
    action: { type: 'command', argv: ['deploy', 'a b'], env: {}, passEnv: [] },
    attempts: 1,
    onWorkerLoss: 'rerun',
  });
});

test('a repeated option adds to what is there, and replaces it after --unset', async () => {
  await createAutomation(store, 'variables', EVERYTHING);
  const actionAfter = async (...changes: Parameters<typeof set>) => {
    await set(...changes);
    return (await automations.get('variables'))?.action;
  };
  expect(
    await actionAfter('variables', { env: { B: '3', C: '4' }, passEnv: ['OTHER', 'MORE'] }),
  ).toMatchObject({
    env: { A: '1', B: '3', C: '4' },
    passEnv: ['TOKEN', 'OTHER', 'MORE'],
  });
  expect(await actionAfter('variables', {}, [], ['env.A', 'pass-env.TOKEN'])).toMatchObject({
    env: { B: '3', C: '4' },
    passEnv: ['OTHER', 'MORE'],
  });
  expect(await actionAfter('variables', { env: { Z: '1' } }, [], ['env', 'pass-env'])).toMatchObject({
    env: { Z: '1' },
    passEnv: [],
  });
  expect(await actionAfter('variables', {}, [], ['env.Z'])).toMatchObject({ env: {} });
  await expect(set('variables', {}, [], ['env.Z'])).rejects.toThrow('The automation variables has no env.Z');
});

test('another type of action takes nothing over from the one before, and is issued a signing secret if it signs', async () => {
  // Events would need a secret, too.
  const { onEnd: _, onFailure: __, ...withoutEvents } = EVERYTHING;
  await createAutomation(store, 'typed', withoutEvents);
  const toUrl = await set('typed', { url: 'https://example.com/hook' });
  expect(toUrl?.changed.map(({ field }) => field).sort()).toEqual([
    ...['command', 'cwd', 'env.A', 'env.B', 'passEnv', 'url'],
  ]);
  const stored = await automations.get('typed');
  expect(stored).toMatchObject({
    action: { type: 'http', url: 'https://example.com/hook' },
    rate: EVERYTHING.rate,
    signingSecret: toUrl?.signingSecret,
  });
  expect(toUrl?.signingSecret).toMatch(/^whsec_/);
  expect(await set('typed', { url: 'https://example.com/other' })).not.toHaveProperty('signingSecret');
  await set('typed', {}, ['true']);
  const command = await automations.get('typed');
  expect(command?.action).toEqual({ type: 'command', argv: ['true'], env: {}, passEnv: [] });
  expect(command?.signingSecret).toBeUndefined();
});

test('many changes at once are all made, also those of one millisecond', async () => {
  await createAutomation(store, 'contested');
  const changes: AutomationOptions[] = [
    ...[{ name: 'a' }, { timeout: '5m' }, { attempts: 7 }, { concurrency: 3 }, { rate: '5/s' }],
    ...[{ keepRuns: 9 }, { onWorkerLoss: 'fail' }, { cwd: '/tmp' }, { env: { A: '1' } }, { env: { B: '2' } }],
  ];
  await Promise.all(changes.map((options) => set('contested', options)));
  expect(await automations.get('contested')).toMatchObject({
    ...{ name: 'a', timeoutMs: 300_000, attempts: 7, concurrency: 3, rate: { limit: 5, windowMs: 1000 } },
    ...{ keepRuns: 9, onWorkerLoss: 'fail', action: { cwd: '/tmp', env: { A: '1', B: '2' } } },
  });
});

test.each([
  ['nothing', {}, [], 'Say what to change'],
  ['an unknown option to unset', {}, ['speed'], "--unset cannot take 'speed'"],
  ['the URL to unset', {}, ['url'], "--unset cannot take 'url'"],
  ['a part of what has none', {}, ['rate.x'], "--unset cannot take 'rate.x'"],
  ['to skip without a limit', { whenBusy: 'skip' }, [], '--when-busy skip needs a concurrency'],
  ['to skip at a large limit', { whenBusy: 'skip', concurrency: 1001 }, [], 'a concurrency of at most 1000'],
  ['a wrong value', { rate: '60' }, [], '--rate must be a number per s, m, h or d'],
  ['an option of another type of action', { cwd: '/srv' }, [], '--cwd is for commands only'],
])('to change %s is a usage error that changes nothing', async (name, options, unset, message) => {
  const slug = `refused-${name.replace(/\W+/g, '-').toLowerCase()}`;
  await createAutomation(store, slug, { action: { type: 'http', url: 'https://example.com/' } });
  const before = await automations.get(slug);
  await expect((async () => set(slug, options, [], unset))()).rejects.toThrow(message);
  expect(await automations.get(slug)).toEqual(before);
});

test('what is as it should be already is not touched', async () => {
  await createAutomation(store, 'same', EVERYTHING);
  const before = await automations.get('same');
  expect(await set('same', { timeout: '1.5m', env: { A: '1' } }, [], [])).toEqual({ changed: [] });
  expect(await automations.get('same')).toEqual(before);
  expect(await set('no-such-automation', { timeout: '5m' })).toBeUndefined();
});
