import { describe, expect, test, vi } from 'vitest';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { expectAccepted, expectError, openTestApp, readRun, trigger } from '../support/app.ts';
import { createAutomation, definition } from '../support/store.ts';

const { app, store } = openTestApp();

const SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  required: ['ref'],
  properties: { ref: { type: 'string', pattern: '^refs/' } },
};

/** Replaces an automation's definition, as `orc automations set` does. */
async function change(slug: string, changes: Partial<AutomationDefinition>): Promise<void> {
  const seen = await store.automations.get(slug);
  if (!seen) throw new Error(`there is no ${slug}`);
  const { status } = await store.automations.replace(seen, definition(slug, changes));
  expect(status).toBe('replaced');
}

/** How often a schema was read from Redis while `act` went on. */
async function readsOf(act: () => Promise<unknown>): Promise<number> {
  const hmget = vi.spyOn(store.redis, 'hmget');
  await act();
  const reads = hmget.mock.calls.filter((call) => (call as unknown[]).includes('schema')).length;
  hmget.mockRestore();
  return reads;
}

test('a payload that does not fit is a 400 that names the place and the rule, and starts no run', async () => {
  const key = await createAutomation(store, 'refuses', { schema: SCHEMA });
  const { message, hint } = expectError(
    await app.inject(trigger('refuses', key, '{"ref":"main"}')),
    400,
    'invalid_payload',
  );
  expect(message).toBe(
    'The payload does not fit the automation\'s schema: /ref must match the pattern "^refs/" (pattern).',
  );
  expect(hint).toContain('/docs#payload-schema');
  expect(await store.runs.list({ automation: 'refuses', limit: 10 })).toEqual([]);
});

test('no payload counts as an empty object, which must fit, too', async () => {
  const key = await createAutomation(store, 'empty', { schema: SCHEMA });
  const { message } = expectError(await app.inject(trigger('empty', key)), 400, 'invalid_payload');
  expect(message).toContain('the object must have the property "ref" (required)');
});

test('a payload that fits reaches its run byte for byte', async () => {
  const key = await createAutomation(store, 'accepts', { schema: SCHEMA });
  const payload = ' {"ref":"refs/a", "n":123456789012345678901234567890,"__proto__":{"ref":1}}';
  const runId = expectAccepted(await app.inject(trigger('accepts', key, payload)));
  expect((await readRun(store, runId)).payload.toString()).toBe(payload);
});

test('only who holds the key is told of the schema', async () => {
  const key = await createAutomation(store, 'hidden', { schema: SCHEMA });
  const other = await createAutomation(store, 'other');
  expectError(await app.inject(trigger('hidden', other, '{}')), 401, 'invalid_api_key');
  // The key was right a moment ago: it is still in memory.
  expectAccepted(await app.inject(trigger('hidden', key, '{"ref":"refs/a"}')));
  await store.automations.rotateKey('hidden', 0);
  expectError(await app.inject(trigger('hidden', key, '{}')), 401, 'invalid_api_key');
});

test('a payload is judged before the rate is, and takes nothing of it or of its idempotency key', async () => {
  const key = await createAutomation(store, 'once', {
    schema: SCHEMA,
    rate: { limit: 1, windowMs: 60_000 },
  });
  const request = (payload: string) => trigger('once', key, payload, { 'idempotency-key': 'k' });
  expectError(await app.inject(request('{}')), 400, 'invalid_payload');
  const runId = expectAccepted(await app.inject(request('{"ref":"refs/a"}')));
  expect((await app.inject(request('{"ref":"refs/a"}'))).json().runId).toBe(runId);
  expectError(await app.inject(trigger('once', key, '{}')), 400, 'invalid_payload');
  expectError(await app.inject(trigger('once', key, '{"ref":"refs/b"}')), 429, 'rate_limited');
});

describe('a schema', () => {
  test('is read once, and again when it has changed', async () => {
    const key = await createAutomation(store, 'cached', { schema: { ...SCHEMA, title: 'cached' } });
    const send = () => app.inject(trigger('cached', key, '{"ref":"refs/a"}'));
    const sendThrice = async () => {
      for (let times = 0; times < 3; times += 1) expectAccepted(await send());
    };
    expect(await readsOf(sendThrice)).toBe(1);
    await change('cached', { schema: { ...SCHEMA, required: ['ref', 'sha'] } });
    expect(await readsOf(async () => expectError(await send(), 400, 'invalid_payload'))).toBe(1);
    await change('cached', {});
    expect(await readsOf(sendThrice)).toBe(0);
    expectAccepted(await app.inject(trigger('cached', key, '{}')));
  });

  test('is not asked for where there is none', async () => {
    const key = await createAutomation(store, 'without');
    expect(await readsOf(async () => expectAccepted(await app.inject(trigger('without', key, '{}'))))).toBe(
      0,
    );
  });

  test('that is set between the check of the key and the acceptance counts', async () => {
    const key = await createAutomation(store, 'race');
    expectAccepted(await app.inject(trigger('race', key, '{}')));
    // Memory has the automation without a schema; the script sees that it has changed.
    await change('race', { schema: SCHEMA });
    expectError(await app.inject(trigger('race', key, '{}')), 400, 'invalid_payload');
    expectAccepted(await app.inject(trigger('race', key, '{"ref":"refs/a"}')));
  });

  test('that was loosened lets a payload through that the one before refused', async () => {
    const key = await createAutomation(store, 'loosened', { schema: SCHEMA });
    expectAccepted(await app.inject(trigger('loosened', key, '{"ref":"refs/a"}')));
    await change('loosened', { schema: { type: 'object' } });
    expectAccepted(await app.inject(trigger('loosened', key, '{"ref":1}')));
  });

  test('that Redis does not tell is a 503 that says that no run was accepted', async () => {
    const key = await createAutomation(store, 'unread', { schema: { ...SCHEMA, title: 'unread' } });
    const hmget = vi.spyOn(store.redis, 'hmget').mockRejectedValueOnce(new Error('no reply'));
    const { message } = expectError(
      await app.inject(trigger('unread', key, '{"ref":"refs/a"}')),
      503,
      'queue_unavailable',
    );
    hmget.mockRestore();
    expect(message).toBe('The queue is not available; no run was accepted.');
    expectAccepted(await app.inject(trigger('unread', key, '{"ref":"refs/a"}')));
  });
});
