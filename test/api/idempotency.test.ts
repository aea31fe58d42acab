import { createHash, hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { AttemptResult } from '../../src/core/run.ts';
import { newRunId } from '../../src/store/run-id.ts';
import { expectError, openTestApp, trigger } from '../support/app.ts';
import { startConsumer, untilStatus } from '../support/runs.ts';
import { createAutomation } from '../support/store.ts';

const { app, store } = openTestApp();

/** Sends a trigger request with an idempotency key. */
async function send(slug: string, apiKey: string, key: string, payload?: string) {
  return app.inject(trigger(slug, apiKey, payload, { 'idempotency-key': key }));
}

/** The runs of an automation that exist. */
async function runsOf(automation: string) {
  return store.runs.list({ automation, limit: 1000 });
}

describe('a request that is repeated with its key', () => {
  test('is answered with the run of the first one', async () => {
    const apiKey = await createAutomation(store, 'repeated');
    const first = await send('repeated', apiKey, 'key-1', '{"n":1}');
    expect(first.statusCode).toBe(202);
    expect(first.headers).not.toHaveProperty('idempotency-replayed');

    const second = await send('repeated', apiKey, 'key-1', '{"n":1}');
    expect(second.statusCode).toBe(202);
    expect(second.headers['idempotency-replayed']).toBe('true');
    expect(second.json()).toEqual(first.json());
    expect(await runsOf('repeated')).toHaveLength(1);
  });

  test('shows how the run stands now', async () => {
    const apiKey = await createAutomation(store, 'watched');
    const { runId } = (await send('watched', apiKey, 'key', '{}')).json();
    const consumer = startConsumer(store, async () => ({
      outcome: { status: 'failed', reason: 'exit_code', message: 'no', exitCode: 1 },
      mayRetry: false,
    }));
    await untilStatus(store, runId, 'failed');
    expect((await send('watched', apiKey, 'key', '{}')).json()).toEqual({ runId, status: 'failed' });

    // The run is no longer kept, and the key still leads to how it ended.
    await store.redis.del(`${store.keys.queuePrefix}:runs:${runId}`);
    expect((await send('watched', apiKey, 'key', '{}')).json()).toEqual({ runId, status: 'failed' });
    await consumer.close(1000);
  });

  test('makes exactly one run when 200 requests come at once', async () => {
    const apiKey = await createAutomation(store, 'crowded', { rate: { limit: 5, windowMs: 60_000 } });
    const answers = await Promise.all(
      Array.from({ length: 200 }, () => send('crowded', apiKey, 'one', '{}')),
    );
    expect(new Set(answers.map(({ statusCode }) => statusCode))).toEqual(new Set([202]));
    expect(new Set(answers.map((answer) => answer.json().runId)).size).toBe(1);
    expect(answers.filter(({ headers }) => headers['idempotency-replayed'] === undefined)).toHaveLength(1);
    expect(await runsOf('crowded')).toHaveLength(1);
  });

  test('is answered beyond the rate limit and with a full queue, as it makes no run', async () => {
    const apiKey = await createAutomation(store, 'limited', { rate: { limit: 1, windowMs: 60_000 } });
    const first = await send('limited', apiKey, 'a', '{}');
    expectError(await send('limited', apiKey, 'b', '{}'), 429, 'rate_limited');
    const again = await send('limited', apiKey, 'a', '{}');
    expect(again.statusCode).toBe(202);
    expect(again.json()).toEqual(first.json());
  });

  test('is refused when its body is another one, to the byte', async () => {
    const apiKey = await createAutomation(store, 'changed');
    await send('changed', apiKey, 'key', '{"n":1}');
    expectError(await send('changed', apiKey, 'key', '{"n": 1}'), 422, 'idempotency_key_reused');
    expectError(await send('changed', apiKey, 'key'), 422, 'idempotency_key_reused');
    expect(await runsOf('changed')).toHaveLength(1);
  });
});

describe('a key', () => {
  test('belongs to its automation', async () => {
    const keys = await Promise.all(['one', 'two'].map((slug) => createAutomation(store, `owner-${slug}`)));
    const first = await send('owner-one', keys[0] ?? '', 'shared', '{}');
    const second = await send('owner-two', keys[1] ?? '', 'shared', '{"other":true}');
    expect([first.statusCode, second.statusCode]).toEqual([202, 202]);
    expect(second.json().runId).not.toBe(first.json().runId);
  });

  test('is remembered for 24 hours, however long runs are kept', async () => {
    const apiKey = await createAutomation(store, 'remembered');
    await send('remembered', apiKey, 'key', '{}');
    const { id = '' } = (await store.automations.get('remembered')) ?? {};
    const hash = createHash('sha256').update('key').digest('base64url');
    const ttlMs = await store.redis.pttl(store.keys.idempotency(id, hash));
    expect(ttlMs).toBeGreaterThan(86_000_000);
    expect(ttlMs).toBeLessThanOrEqual(86_400_000);
  });

  test.each([
    ['nothing', ''],
    ['256 characters', 'k'.repeat(256)],
    ['characters beyond ASCII', 'schlüssel'],
  ])('of %s is refused', async (_, key) => {
    const apiKey = await createAutomation(store, `unusable-${key.length}`);
    expectError(await send(`unusable-${key.length}`, apiKey, key, '{}'), 400, 'invalid_idempotency_key');
  });

  test('of 255 printable characters is accepted', async () => {
    const apiKey = await createAutomation(store, 'longest');
    expect((await send('longest', apiKey, '~'.repeat(255), '{}')).statusCode).toBe(202);
  });

  test('is in no key and no value that is stored', async () => {
    const apiKey = await createAutomation(store, 'discreet');
    await send('discreet', apiKey, 'canary-key-4711', '{}');
    const names = await store.redis.keys(`${store.keys.queuePrefix}*`);
    expect(names.filter((name) => name.includes('canary-key-4711'))).toEqual([]);
    const dumps = await Promise.all(names.map((name) => store.redis.dumpBuffer(name)));
    expect(dumps.filter((dump) => dump?.includes('canary-key-4711'))).toEqual([]);
  });
});

describe('a request that is rejected uses up no key', () => {
  test('when its API key is wrong, its automation disabled or its body malformed', async () => {
    const apiKey = await createAutomation(store, 'rejected');
    expect((await send('rejected', await createAutomation(store, 'stranger'), 'key', '{}')).statusCode).toBe(
      401,
    );
    await store.automations.setEnabled('rejected', false);
    expect((await send('rejected', apiKey, 'key', '{"b":1}')).statusCode).toBe(403);
    await store.automations.setEnabled('rejected', true);
    expect((await send('rejected', apiKey, 'key', '[]')).statusCode).toBe(400);
    const accepted = await send('rejected', apiKey, 'key', '{"c":1}');
    expect(accepted.statusCode).toBe(202);
    expect(accepted.headers).not.toHaveProperty('idempotency-replayed');
  });

  test('when its automation has used up its rate', async () => {
    const apiKey = await createAutomation(store, 'too-fast', { rate: { limit: 1, windowMs: 60_000 } });
    await app.inject(trigger('too-fast', apiKey, '{}'));
    expectError(await send('too-fast', apiKey, 'key', '{"n":1}'), 429, 'rate_limited');
    const { id = '' } = (await store.automations.get('too-fast')) ?? {};
    await store.redis.del(store.keys.rateWindow(id));
    expect((await send('too-fast', apiKey, 'key', '{"n":2}')).statusCode).toBe(202);
  });
});

test('a key that a process of the version before has reserved leads to the run that it was reserved for', async () => {
  const apiKey = await createAutomation(store, 'reserved');
  const { id = '' } = (await store.automations.get('reserved')) ?? {};
  const runId = newRunId();
  const sha256 = (text: string) => createHash('sha256').update(text).digest('base64url');
  const key = store.keys.idempotency(id, sha256('key'));
  await store.redis.hset(key, { runId, payloadHash: sha256('{"n":1}') });

  expectError(await send('reserved', apiKey, 'key', '{"n":2}'), 422, 'idempotency_key_reused');
  const adopted = await send('reserved', apiKey, 'key', '{"n":1}');
  expect(adopted.json()).toEqual({ runId, status: 'queued' });
  expect((await send('reserved', apiKey, 'key', '{"n":1}')).json().runId).toBe(runId);
  expect(await runsOf('reserved')).toHaveLength(1);
});

test('an automation with a concurrency limit keeps its order with keys, too', async () => {
  const apiKey = await createAutomation(store, 'single', { concurrency: 1 });
  const ids: string[] = [];
  for (const key of ['a', 'b', 'c', 'a', 'b'])
    ids.push((await send('single', apiKey, key, '{}')).json().runId);
  expect(ids.slice(3)).toEqual(ids.slice(0, 2));
  const started: string[] = [];
  const consumer = startConsumer(store, async ({ id }) => {
    started.push(id);
    return { outcome: { status: 'succeeded', reason: 'exit_code', message: 'yes' }, mayRetry: false };
  });
  await untilStatus(store, ids[2] ?? '', 'succeeded');
  expect(started.filter((id) => ids.includes(id))).toEqual(ids.slice(0, 3));
  await consumer.close(1000);
});

describe('a request that is repeated with `Prefer: return=representation`', () => {
  const PREFER = 'return=representation';
  const OUTCOME = { status: 'failed', reason: 'exit_code', message: 'It failed.', exitCode: 3 } as const;
  const RESULT = '{ "n": 12345678901234567890, "__proto__": {"a": 1} }';

  /** Has a run of a new automation end as told, and returns what repeats its request. */
  async function ended(slug: string, result: AttemptResult) {
    const apiKey = await createAutomation(store, slug);
    const repeat = (prefer?: string) =>
      app.inject(trigger(slug, apiKey, '{}', { 'idempotency-key': 'key', ...(prefer && { prefer }) }));
    const first = await repeat(PREFER);
    const { runId } = first.json();
    const consumer = startConsumer(store, async () => result);
    await untilStatus(store, runId, result.outcome.status);
    await consumer.close(1000);
    return { first, runId, repeat };
  }

  test('is answered with the outcome and, byte for byte, the result of the run that has ended', async () => {
    const outcome = { ...OUTCOME, detail: 'printed', signal: 'SIGTERM', resultBytes: RESULT.length };
    const { first, runId, repeat } = await ended('represented', { outcome, mayRetry: false, result: RESULT });
    expect(first.json()).toEqual({ runId, status: 'queued' });
    expect(first.headers).not.toHaveProperty('preference-applied');

    const answer = await repeat(PREFER);
    expect(answer.statusCode).toBe(202);
    expect(answer.headers).toMatchObject({
      'preference-applied': PREFER,
      'idempotency-replayed': 'true',
      'content-type': 'application/json; charset=utf-8',
    });
    const told = '{"reason":"exit_code","message":"It failed.","exitCode":3}';
    expect(answer.body).toBe(`{"runId":"${runId}","status":"failed","outcome":${told},"result":${RESULT}}`);
  });

  test('is answered without a result if the run has none', async () => {
    const { runId, repeat } = await ended('without-result', { outcome: OUTCOME, mayRetry: false });
    const { status, ...outcome } = OUTCOME;
    expect((await repeat(PREFER)).json()).toEqual({ runId, status, outcome });
  });

  test('is not told what names the machines of the workers', async () => {
    const message = 'The command could not be started: there is no directory /srv/secret-project.';
    const outcome = { status: 'failed', reason: 'not_started', message } as const;
    const { repeat } = await ended('not-started', { outcome, mayRetry: false });
    const told = { reason: 'not_started', message: 'The run could not be started.' };
    expect((await repeat(PREFER)).json().outcome).toEqual(told);
  });

  test.each([
    ['Return="representation"', true],
    ['respond-async, return=representation; x=1, wait=5', true],
    ['note="a, return=minimal", return = representation', true],
    ['return=minimal, return=representation', false],
    ['return=minimal', false],
    ['xreturn=representation', false],
    ['"', false],
  ])('a header %j means it: %s', async (prefer, isMeant) => {
    const slug = `prefers-${hash('sha1', prefer)}`;
    const { runId, repeat } = await ended(slug, { outcome: OUTCOME, mayRetry: false });
    const answer = await repeat(prefer);
    expect(answer.headers['preference-applied']).toBe(isMeant ? PREFER : undefined);
    if (!isMeant) expect(answer.json()).toEqual({ runId, status: 'failed' });
    expect((await repeat()).json()).toEqual({ runId, status: 'failed' });
  });
});
