import { describe, expect, test } from 'vitest';
import { hashApiKey, mintApiKey } from '../../src/core/api-key.ts';
import type { Authentication, ExecutableAutomation } from '../../src/store/automations.ts';
import type { RunStep } from '../../src/store/run-record.ts';
import { acceptRun, createTriggered } from '../support/runs.ts';
import { command, createAutomation, definition, openTestStore } from '../support/store.ts';

const store = openTestStore();
const { automations } = store;

const GRACE_MS = 60_000;

async function statusOf(slug: string, apiKey: string): Promise<Authentication['status']> {
  return (await automations.authenticate(slug, apiKey)).status;
}

async function rotate(slug: string, graceMs: number): Promise<{ apiKey: string; previousKeyEndsAt: Date }> {
  const rotated = await automations.rotateKey(slug, graceMs);
  if (rotated.status !== 'rotated') throw new Error(`there is no ${slug}`);
  return rotated;
}

/** Of a run that no automation has accepted. */
async function begin(
  slug: string,
  jobKey: string,
  start: RunStep,
): Promise<ExecutableAutomation | undefined> {
  const begun = await automations.begin({ id: 'run', automation: slug, automationId: 'none' }, jobKey, start);
  if (begun === 'paused') throw new Error(`${slug} is paused`);
  return begun;
}

describe('create', () => {
  test('stores everything an operator decides', async () => {
    const complete = definition('complete', {
      name: 'Wöchentlicher Bericht 📊 "quoted"\nsecond line',
      enabled: false,
      action: {
        type: 'command',
        argv: ['report', '', '--to', 'a b', 'ü'],
        cwd: '/srv/reports',
        env: { LANGUAGE: 'de', EMPTY: '' },
        passEnv: ['TOKEN'],
      },
      timeoutMs: 90_000,
      attempts: 3,
      concurrency: 2,
      rate: { limit: 60, windowMs: 60_000 },
      onWorkerLoss: 'fail',
    });
    const created = await automations.create(complete);
    if (created.status !== 'created') throw new Error(created.status);
    expect(created.automation).toMatchObject(complete);
    expect(await automations.get('complete')).toEqual(created.automation);
  });

  test('adds nothing to what is optional and was left out', async () => {
    const created = await automations.create(definition('minimal'));
    if (created.status !== 'created') throw new Error(created.status);
    expect(await automations.get('minimal')).toEqual({
      ...definition('minimal'),
      id: created.automation.id,
      createdAt: created.automation.createdAt,
      updatedAt: created.automation.createdAt,
      keyCreatedAt: created.automation.createdAt,
    });
  });

  test('leaves an automation that exists as it is, key included', async () => {
    const apiKey = await createAutomation(store, 'kept', { name: 'first' });
    const before = await automations.get('kept');
    expect(await automations.create(definition('kept', { name: 'second' }))).toEqual({ status: 'exists' });
    expect(await automations.get('kept')).toEqual(before);
    expect(await statusOf('kept', apiKey)).toBe('authenticated');
  });

  test('creates one automation when many are given the same slug at once', async () => {
    const names = Array.from({ length: 10 }, (_, index) => `number ${index}`);
    const results = await Promise.all(
      names.map((name) => automations.create(definition('contested', { name }))),
    );
    const created = results.filter((result) => result.status === 'created');
    expect(created).toHaveLength(1);
    expect(await automations.get('contested')).toEqual(created[0]?.automation);
    expect(await statusOf('contested', created[0]?.apiKey ?? '')).toBe('authenticated');
  });

  test('makes a Standard Webhooks secret for an automation that delivers to a URL, and no other', async () => {
    const action = { type: 'http', url: 'https://example.com/hook' } as const;
    const delivering = await automations.create(definition('delivering', { action }));
    const running = await automations.create(definition('running', { action: command('true') }));
    if (delivering.status !== 'created' || running.status !== 'created') throw new Error('not created');
    expect(running).not.toHaveProperty('signingSecret');
    const { signingSecret = '' } = delivering;
    expect(signingSecret).toMatch(/^whsec_/);
    const bytes = Buffer.from(signingSecret.replace('whsec_', ''), 'base64');
    expect(bytes.length).toBeGreaterThanOrEqual(24);
    expect(bytes.length).toBeLessThanOrEqual(64);
    expect(await automations.get('delivering')).toMatchObject({ action, signingSecret });
  });
});

test('what a key has opened is recalled for that key, until Redis says otherwise', async () => {
  const key = await createAutomation(store, 'recalled', { attempts: 3 });
  expect(automations.recall('recalled', key)).toBeUndefined();
  expect(await statusOf('recalled', key)).toBe('authenticated');
  expect(automations.recall('recalled', key)).toMatchObject({ slug: 'recalled', attempts: 3 });
  expect(automations.recall('recalled', mintApiKey())).toBeUndefined();
  expect(await statusOf('recalled', mintApiKey())).toBe('rejected');
  expect(automations.recall('recalled', key)).toBeDefined();
  await automations.setEnabled('recalled', false);
  expect(await statusOf('recalled', key)).toBe('disabled');
  expect(automations.recall('recalled', key)).toBeUndefined();
});

describe('the beginning of an attempt', () => {
  const START = { attempt: 1, worker: 'worker-7', startedAt: 1_700_000_000_000 };
  const { redis, keys } = store;
  const job = (name: string) => `${keys.queuePrefix}:runs:${name}`;

  test.each([
    ['has all that is set', { timeoutMs: 5000, onWorkerLoss: 'fail', enabled: false }],
    ['has none of what need not be set', {}],
  ] as const)('brings what a worker needs of an automation that %s', async (name, changes) => {
    const slug = `begun-${name.length}`;
    await automations.create(
      definition(slug, { action: { type: 'http', url: 'https://x.test/' }, ...changes }),
    );
    const { id, enabled, action, timeoutMs, onWorkerLoss, signingSecret } =
      (await automations.get(slug)) ?? expect.fail();
    const signingSecrets = signingSecret === undefined ? [] : [signingSecret];
    const needed = { id, enabled, action, timeoutMs, onWorkerLoss, signingSecrets };
    expect(await begin(slug, job('none'), START)).toEqual(needed);
  });

  test('brings nothing of an automation that is gone', async () => {
    expect(await begin('gone', job('none'), START)).toBeUndefined();
  });

  test('is noted with the run, and not with one that is gone', async () => {
    await redis.hset(job('run_noted'), 'name', 'begun');
    for (const name of ['run_noted', 'run_gone']) await begin('begun', job(name), START);
    expect(await redis.lrange(job('run_noted:logs'), 0, -1)).toEqual([JSON.stringify(START)]);
    expect(await redis.exists(job('run_gone:logs'))).toBe(0);
  });

  test('does not depend on the note', async () => {
    await createAutomation(store, 'begun-unnoted');
    await redis.hset(job('run_unnoted'), 'name', 'begun-unnoted');
    await redis.set(job('run_unnoted:logs'), 'not a list');
    const begun = await begin('begun-unnoted', job('run_unnoted'), START);
    expect(begun).toMatchObject({ enabled: true, action: command('true') });
  });
});

describe('list', () => {
  const { automations: listed } = openTestStore();

  test('is empty before there is an automation', async () => {
    expect(await listed.list()).toEqual([]);
    expect(await listed.slugs()).toEqual([]);
  });

  test('has every automation in the order of the slugs, without signing secrets', async () => {
    const action = { type: 'http', url: 'https://example.com/' } as const;
    for (const slug of ['b', 'a-1', '10', 'a', '9']) await listed.create(definition(slug, { action }));
    const found = await listed.list();
    expect(found.map(({ slug }) => slug)).toEqual(['10', '9', 'a', 'a-1', 'b']);
    expect(await listed.slugs()).toEqual(['10', '9', 'a', 'a-1', 'b']);
    for (const automation of found) expect(automation).not.toHaveProperty('signingSecret');
    const { signingSecret: _, ...first } = (await listed.get('10')) ?? {};
    expect(found[0]).toEqual(first);
  });

  test('has more automations than are read at once', async () => {
    const slugs = Array.from({ length: 520 }, (_, index) => `many-${1000 + index}`);
    await Promise.all(slugs.map((slug) => listed.create(definition(slug))));
    expect((await listed.list()).map(({ slug }) => slug)).toEqual(expect.arrayContaining(slugs));
  });
});

describe('enabling and disabling', () => {
  test('count from the next request on, and change nothing else', async () => {
    const apiKey = await createAutomation(store, 'switched', { concurrency: 3 });
    const before = await automations.get('switched');
    expect(await automations.setEnabled('switched', false)).toBe(true);
    expect(await statusOf('switched', apiKey)).toBe('disabled');
    expect(await automations.get('switched')).toEqual({
      ...before,
      enabled: false,
      updatedAt: expect.any(Date),
    });
    expect(await automations.setEnabled('switched', true)).toBe(true);
    expect(await statusOf('switched', apiKey)).toBe('authenticated');
  });

  test('do not make an automation of an unknown slug', async () => {
    expect(await automations.setEnabled('unknown', true)).toBe(false);
    expect(await automations.get('unknown')).toBeUndefined();
    expect(await store.redis.exists(store.keys.automation('unknown'))).toBe(0);
  });
});

describe('delete', () => {
  test('takes the automation away and leaves its runs readable', async () => {
    const automation = await createTriggered(store, 'deleted');
    const runId = await acceptRun(store, automation);
    expect(await automations.delete('deleted')).toBe(true);
    expect(await automations.get('deleted')).toBeUndefined();
    expect(await automations.slugs()).not.toContain('deleted');
    expect(await store.runs.get(runId)).toMatchObject({ automation: 'deleted', status: 'queued' });
    expect(await automations.delete('deleted')).toBe(false);
  });

  test('ends the key for good, even when the slug is given again', async () => {
    const oldKey = await createAutomation(store, 'reused');
    const before = await automations.get('reused');
    await automations.delete('reused');
    expect(await statusOf('reused', oldKey)).toBe('rejected');
    const newKey = await createAutomation(store, 'reused');
    expect(await statusOf('reused', oldKey)).toBe('rejected');
    expect(await statusOf('reused', newKey)).toBe('authenticated');
    expect((await automations.get('reused'))?.id).not.toBe(before?.id);
  });
});

describe('rotateKey', () => {
  test('with a grace lets the old and the new key in until the moment it names', async () => {
    const oldKey = await createAutomation(store, 'graced');
    const { apiKey: newKey, previousKeyEndsAt } = await rotate('graced', GRACE_MS);
    expect(await statusOf('graced', oldKey)).toBe('authenticated');
    expect(await statusOf('graced', newKey)).toBe('authenticated');
    const automation = await automations.get('graced');
    expect(automation?.previousKeyEndsAt).toEqual(previousKeyEndsAt);
    expect(previousKeyEndsAt.getTime() - Number(automation?.keyCreatedAt)).toBe(GRACE_MS);
  });

  test('ends the old key when its grace is over', async () => {
    const oldKey = await createAutomation(store, 'ending');
    const { apiKey: newKey } = await rotate('ending', 50);
    await expect.poll(() => statusOf('ending', oldKey)).toBe('rejected');
    expect(await statusOf('ending', newKey)).toBe('authenticated');
    expect(await automations.get('ending')).not.toHaveProperty('previousKeyEndsAt');
  });

  test('without a grace keeps nothing of the old key, nor of one that was still in its grace', async () => {
    const oldKey = await createAutomation(store, 'forgotten');
    await rotate('forgotten', GRACE_MS);
    const { apiKey: newKey } = await rotate('forgotten', 0);
    // So that a process whose clock is behind lets neither in.
    expect(
      await store.redis.hmget(store.keys.automation('forgotten'), 'previousKeyHash', 'previousKeyEndsAt'),
    ).toEqual([null, null]);
    expect(await statusOf('forgotten', oldKey)).toBe('rejected');
    expect(await statusOf('forgotten', newKey)).toBe('authenticated');
  });

  test('twice in a row leaves only the last two keys', async () => {
    const first = await createAutomation(store, 'twice');
    const { apiKey: second } = await rotate('twice', GRACE_MS);
    const { apiKey: third } = await rotate('twice', GRACE_MS);
    expect(await statusOf('twice', first)).toBe('rejected');
    expect(await statusOf('twice', second)).toBe('authenticated');
    expect(await statusOf('twice', third)).toBe('authenticated');
  });

  test('does not make an automation of an unknown slug', async () => {
    expect(await automations.rotateKey('unknown', GRACE_MS)).toEqual({ status: 'not_found' });
    expect(await store.redis.exists(store.keys.automation('unknown'))).toBe(0);
  });
});

describe('authenticate', () => {
  test('hands whoever holds the key what accepting a run takes', async () => {
    const rate = { limit: 5, windowMs: 1000 };
    const apiKey = await createAutomation(store, 'limited', { attempts: 4, concurrency: 1, rate });
    const { id, updatedAt } = (await automations.get('limited')) ?? expect.fail();
    expect(await automations.authenticate('limited', apiKey)).toEqual({
      status: 'authenticated',
      automation: {
        ...{ id, slug: 'limited', updatedAt: `${updatedAt.getTime()}`, keyHash: hashApiKey(apiKey) },
        attempts: 4,
        concurrency: 1,
        rate,
      },
    });

    const plainKey = await createAutomation(store, 'plain');
    const opened = await automations.authenticate('plain', plainKey);
    expect(Object.keys(opened.status === 'authenticated' ? opened.automation : {}).sort()).toEqual([
      'attempts',
      'id',
      'keyHash',
      'slug',
      'updatedAt',
    ]);
  });

  test('opens an automation for an operator, who has no key, if there is one and it is enabled', async () => {
    await createAutomation(store, 'operated', { concurrency: 2 });
    const opened = await automations.open('operated');
    if (opened.status !== 'authenticated') expect.fail(opened.status);
    expect(opened.automation).toMatchObject({ slug: 'operated', concurrency: 2 });
    expect(opened.automation).not.toHaveProperty('keyHash');
    await automations.setEnabled('operated', false);
    expect(await automations.reopen(opened.automation)).toEqual({ status: 'disabled' });
    await automations.delete('operated');
    expect(await automations.reopen(opened.automation)).toEqual({ status: 'rejected' });
    expect(await automations.open('')).toEqual({ status: 'rejected' });
  });

  test('rejects a key that was never issued and one that belongs to another automation', async () => {
    await createAutomation(store, 'mine');
    const otherKey = await createAutomation(store, 'other');
    expect(await automations.authenticate('mine', mintApiKey())).toEqual({ status: 'rejected' });
    expect(await automations.authenticate('mine', otherKey)).toEqual({ status: 'rejected' });
  });

  test.each(['unknown', '', '*', 'Other', '../other', 'other\n', '{other}', 'x'.repeat(65)])(
    'rejects every key for the slug %j',
    async (slug) => {
      expect(await automations.authenticate(slug, mintApiKey())).toEqual({ status: 'rejected' });
    },
  );

  test('does not look behind a malformed slug, even where something is stored', async () => {
    const apiKey = await createAutomation(store, 'origin');
    await store.redis.copy(store.keys.automation('origin'), store.keys.automation('Not A Slug'));
    expect(await statusOf('origin', apiKey)).toBe('authenticated');
    expect(await statusOf('Not A Slug', apiKey)).toBe('rejected');
  });

  test("tells of the automation's being disabled only whoever holds its key", async () => {
    const apiKey = await createAutomation(store, 'off', { enabled: false });
    expect(await automations.authenticate('off', apiKey)).toEqual({ status: 'disabled' });
    expect(await automations.authenticate('off', mintApiKey())).toEqual({ status: 'rejected' });
  });
});

describe('rotateSecret', () => {
  const action = { type: 'http', url: 'https://example.com/' } as const;
  const secretsOf = async (slug: string) =>
    (await begin(slug, 'none', { attempt: 1, worker: 'w', startedAt: 1 }))?.signingSecrets;

  test('signs with both secrets in the grace period, and an older one ends at once', async () => {
    await automations.create(definition('both', { action }));
    const first = (await automations.get('both'))?.signingSecret;
    const second = await automations.rotateSecret('both', 60_000);
    if (second.status !== 'rotated') throw new Error(second.status);
    expect(await secretsOf('both')).toEqual([second.signingSecret, first]);
    expect((await automations.get('both'))?.previousSecretEndsAt).toEqual(second.previousSecretEndsAt);
    const third = await automations.rotateSecret('both', 60_000);
    if (third.status !== 'rotated') throw new Error(third.status);
    expect(await secretsOf('both')).toEqual([third.signingSecret, second.signingSecret]);
  });

  test('without a grace period, or after it, signs with the new secret only', async () => {
    await automations.create(definition('one', { action }));
    const rotated = await automations.rotateSecret('one', 0);
    expect(rotated).toMatchObject({ status: 'rotated' });
    expect(await secretsOf('one')).toEqual([(await automations.get('one'))?.signingSecret]);
    await automations.rotateSecret('one', 60_000);
    await store.redis.hset(store.keys.automation('one'), 'previousSecretEndsAt', Date.now() - 1);
    expect(await secretsOf('one')).toEqual([(await automations.get('one'))?.signingSecret]);
    expect(await automations.get('one')).not.toHaveProperty('previousSecretEndsAt');
  });

  test('changes nothing where there is no secret', async () => {
    await automations.create(definition('unsigned'));
    const before = await automations.get('unsigned');
    expect(await automations.rotateSecret('unsigned', 0)).toEqual({ status: 'unsigned' });
    expect(await automations.get('unsigned')).toEqual(before);
    expect(await automations.rotateSecret('none', 0)).toEqual({ status: 'not_found' });
  });
});

describe('replace', () => {
  const everything = {
    timeoutMs: 1,
    concurrency: 2,
    keepRuns: 3,
    rate: { limit: 4, windowMs: 1000 },
    onEnd: 'https://example.com/end',
    onFailure: 'https://example.com/failure',
  };

  async function created(slug: string, changes = {}) {
    const apiKey = await createAutomation(store, slug, changes);
    const automation = await automations.get(slug);
    if (!automation) throw new Error(`there is no ${slug}`);
    return { apiKey, automation };
  }

  test('leaves nothing of the old definition, and everything else as it was', async () => {
    const { apiKey, automation } = await created('replaced', everything);
    const replaced = await automations.replace(automation, definition('replaced', { name: 'new' }));
    expect(replaced).toEqual({ status: 'replaced' });
    const { id, createdAt, keyCreatedAt } = automation;
    const updatedAt = (await automations.get('replaced'))?.updatedAt;
    const expected = { ...definition('replaced', { name: 'new' }), id, createdAt, keyCreatedAt, updatedAt };
    expect(await automations.get('replaced')).toEqual(expected);
    expect(await statusOf('replaced', apiKey)).toBe('authenticated');
  });

  test.each(['onEnd', 'onFailure'])('issues a signing secret for the first URL, with %s', async (field) => {
    const slug = `first-${field.toLowerCase()}`;
    const { automation } = await created(slug);
    expect(automation.signingSecret).toBeUndefined();
    const changes = { [field]: 'https://example.com/' };
    const replaced = await automations.replace(automation, definition(slug, changes));
    const second = (await automations.get(slug)) ?? expect.fail();
    expect(replaced).toEqual({ status: 'replaced', signingSecret: second.signingSecret });
    expect(second).toMatchObject(changes);
    expect(await automations.replace(second, definition(slug, { ...changes, name: 'new' }))).toEqual({
      status: 'replaced',
    });
  });

  test('keeps the signing secret of an automation that goes on to deliver, and drops it otherwise', async () => {
    const deliver = { action: { type: 'http', url: 'https://example.com/' } } as const;
    const { automation } = await created('delivers', deliver);
    await automations.replace(automation, definition('delivers', { ...deliver, name: 'new' }));
    const second = await automations.get('delivers');
    expect(second?.signingSecret).toBe(automation.signingSecret);
    if (second) await automations.replace(second, definition('delivers'));
    expect((await automations.get('delivers'))?.signingSecret).toBeUndefined();
  });

  test.each(['changed', 'deleted', 'recreated'])('leaves one that was %s since as it is', async (how) => {
    const slug = `was-${how}`;
    const { automation } = await created(slug);
    if (how === 'changed') {
      await store.redis.hset(store.keys.automation(slug), 'updatedAt', Date.now() + 1, 'enabled', '0');
    } else await automations.delete(slug);
    if (how === 'recreated') await createAutomation(store, slug);
    const before = await automations.get(slug);
    expect(await automations.replace(automation, definition(slug, everything))).toEqual({
      status: 'conflict',
    });
    expect(await automations.get(slug)).toEqual(before);
  });
});
