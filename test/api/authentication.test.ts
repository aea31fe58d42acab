import { describe, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { expectAccepted, expectError, openTestApp, SETTINGS, trigger } from '../support/app.ts';
import { createAutomation } from '../support/store.ts';

const { app, store } = openTestApp();

/** What tells one refusal from another: the answer without what differs from request to request. */
async function refusal(slug: string, apiKey: string, payload = '{}') {
  const { statusCode, headers, body } = await app.inject(trigger(slug, apiKey, payload));
  const { date: _date, 'x-request-id': _id, ...comparable } = headers;
  return { statusCode, headers: comparable, body };
}

/** Bodies that are refused, but not before the key and the automation are judged. */
const MALFORMED_BODIES: [string, string, Record<string, string>][] = [
  ['malformed JSON', '{"a":', {}],
  ['an array', '[]', {}],
  ['a body over the limit', ' '.repeat(SETTINGS.bodyLimitBytes + 1), {}],
  ['text', 'a=1', { 'content-type': 'text/plain' }],
  ['a malformed content type', '{}', { 'content-type': 'not a media type' }],
  ['a compressed body', '{}', { 'content-encoding': 'gzip' }],
];

/** A slug made of a test's title. */
function slugOf(title: string): string {
  return title.toLowerCase().replaceAll(/[^a-z]+/g, '-');
}

describe('the x-api-key header', () => {
  test('that is missing is a 401 whose message says so', async () => {
    await createAutomation(store, 'no-header');
    const answer = await app.inject(trigger('no-header', undefined, '{}'));
    const { message, hint } = expectError(answer, 401, 'missing_api_key');
    expect(message).toMatch(/x-api-key header is missing/);
    expect(hint).toMatch(/x-api-key/);
  });

  test('that is missing is told before anything about the slug or the body', async () => {
    const answer = await app.inject(trigger('Not A Slug', undefined, 'not json'));
    expectError(answer, 401, 'missing_api_key');
  });

  test('that carries the key of the automation starts a run', async () => {
    const key = await createAutomation(store, 'right-key');
    expectAccepted(await app.inject(trigger('right-key', key, '{}')));
  });

  test('counts under any capitalisation of its name', async () => {
    const key = await createAutomation(store, 'capitals');
    expectAccepted(await app.inject(trigger('capitals', undefined, '{}', { 'X-API-Key': key })));
  });

  test.each([
    ['is empty', () => ''],
    ['is not of the form of a key', () => 'secret'],
    [
      'is a key with a mistyped character',
      (key: string) => `${key.slice(0, -1)}${key.endsWith('A') ? 'B' : 'A'}`,
    ],
    ['is a key in upper case', (key: string) => key.toUpperCase()],
    ['is a key with a character too many', (key: string) => `${key}0`],
    ['is a key as a bearer token', (key: string) => `Bearer ${key}`],
    ['is two keys', (key: string) => `${key}, ${key}`],
    ['is 10 KB long', () => 'orc_'.repeat(2500)],
    ['is a well-formed key that was never issued', () => mintApiKey()],
  ])('that %s is a 401', async (title, change) => {
    const slug = slugOf(title);
    const key = await createAutomation(store, slug);
    const { message } = expectError(
      await app.inject(trigger(slug, change(key), '{}')),
      401,
      'invalid_api_key',
    );
    expect(message).not.toMatch(/missing/);
  });

  test('is the only place for the key: it counts neither in the query nor in Authorization', async () => {
    const key = await createAutomation(store, 'elsewhere');
    const inQuery = trigger(`elsewhere?x-api-key=${key}`, undefined, '{}');
    expectError(await app.inject(inQuery), 401, 'missing_api_key');
    const inAuthorization = trigger('elsewhere', undefined, '{}', { authorization: `Bearer ${key}` });
    expectError(await app.inject(inAuthorization), 401, 'missing_api_key');
  });

  test('with the key of another automation is a 401', async () => {
    await createAutomation(store, 'mine');
    const otherKey = await createAutomation(store, 'other');
    expectError(await app.inject(trigger('mine', otherKey, '{}')), 401, 'invalid_api_key');
    expectAccepted(await app.inject(trigger('other', otherKey, '{}')));
  });

  test('is asked for by every 401, as RFC 9110 demands', async () => {
    for (const key of [undefined, mintApiKey()]) {
      const { statusCode, headers } = await app.inject(trigger('nobody', key, '{}'));
      expect(statusCode).toBe(401);
      expect(headers['www-authenticate']).toMatch(/^[A-Za-z]+ realm="/);
    }
  });
});

describe('nobody learns which slugs exist', () => {
  const malformed: [string, string][] = [
    ['with a character that slugs do not have', 'with_underscore'],
    ['with upper-case letters', 'Known'],
    ['with 65 characters', 'a'.repeat(65)],
    ['with 5,000 characters', 'a'.repeat(5000)],
    ['with a percent-encoded slash', 'known%2Fknown'],
    ['with a percent-encoded NUL', 'known%00'],
    ['with a percent-encoded line break', 'known%0d%0aset'],
    ['with percent-encoded characters outside of ASCII', 'caf%C3%A9'],
    ['with a hyphen at its end', 'known-'],
    ['with a colon, as Redis keys have', 'known:1'],
    ['that is a name of JavaScript objects', '__proto__'],
    ['that is empty', ''],
    ['with a semicolon', 'known;x=1'],
    ['that is a glob pattern', 'kno*'],
  ];

  test.each(malformed)('a malformed slug %s is answered with the bytes of a wrong key', async (_, slug) => {
    const key = await createAutomation(store, 'known');
    try {
      const wrongKey = await refusal('known', mintApiKey());
      expectError(wrongKey, 401, 'invalid_api_key');
      expect(await refusal(slug, mintApiKey())).toEqual(wrongKey);
      expect(await refusal(slug, key)).toEqual(wrongKey);
    } finally {
      await store.automations.delete('known');
    }
  });

  test('an unknown slug is answered with the bytes of a wrong key, whatever the body is', async () => {
    const key = await createAutomation(store, 'exists');
    const wrongKey = await refusal('exists', mintApiKey());
    expect(await refusal('unknown', mintApiKey())).toEqual(wrongKey);
    expect(await refusal('unknown', key)).toEqual(wrongKey);
    expect(await refusal('unknown', key, 'not json')).toEqual(wrongKey);
  });

  test.each(MALFORMED_BODIES)('a wrong key together with %s is a 401', async (title, payload, headers) => {
    const slug = `wrong-key-${slugOf(title)}`;
    await createAutomation(store, slug);
    const answer = await app.inject(trigger(slug, mintApiKey(), payload, headers));
    expectError(answer, 401, 'invalid_api_key');
  });

  test('a wrong key on a disabled automation is answered with the bytes of a wrong key', async () => {
    await createAutomation(store, 'enabled');
    await createAutomation(store, 'disabled', { enabled: false });
    expect(await refusal('disabled', mintApiKey())).toEqual(await refusal('enabled', mintApiKey()));
  });

  test('a percent-encoded letter of a slug is that letter', async () => {
    const key = await createAutomation(store, 'encoded');
    expectAccepted(await app.inject(trigger('%65ncoded', key, '{}')));
  });
});

describe('a disabled automation', () => {
  test('answers 403 to whoever holds its key, and nothing is queued', async () => {
    const key = await createAutomation(store, 'off', { enabled: false });
    const queued = await store.runs.countQueued();
    const { hint } = expectError(await app.inject(trigger('off', key, '{}')), 403, 'automation_disabled');
    expect(hint).toMatch(/enable/);
    expect(await store.runs.countQueued()).toBe(queued);
  });

  test.each(MALFORMED_BODIES)('answers 403 to %s, too', async (title, payload, headers) => {
    const slug = `off-${slugOf(title)}`;
    const key = await createAutomation(store, slug, { enabled: false });
    const answer = await app.inject(trigger(slug, key, payload, headers));
    expectError(answer, 403, 'automation_disabled');
  });
});

describe('from the next request on', () => {
  test('an automation that is disabled or enabled behaves so', async () => {
    const key = await createAutomation(store, 'switch');
    expectAccepted(await app.inject(trigger('switch', key, '{}')));
    await store.automations.setEnabled('switch', false);
    expectError(await app.inject(trigger('switch', key, '{}')), 403, 'automation_disabled');
    await store.automations.setEnabled('switch', true);
    expectAccepted(await app.inject(trigger('switch', key, '{}')));
  });

  test('a key that was rotated without a grace period is a 401, and the new one counts', async () => {
    const oldKey = await createAutomation(store, 'revoked');
    const newKey = await rotate('revoked', 0);
    expectError(await app.inject(trigger('revoked', oldKey, '{}')), 401, 'invalid_api_key');
    expectAccepted(await app.inject(trigger('revoked', newKey, '{}')));
  });

  test('a key in its grace period counts as well as the new one', async () => {
    const oldKey = await createAutomation(store, 'overlap');
    const newKey = await rotate('overlap', 3_600_000);
    expectAccepted(await app.inject(trigger('overlap', oldKey, '{}')));
    expectAccepted(await app.inject(trigger('overlap', newKey, '{}')));
  });

  test('a key in its grace period is ended by another rotation', async () => {
    const firstKey = await createAutomation(store, 'rotated-twice');
    const secondKey = await rotate('rotated-twice', 3_600_000);
    await rotate('rotated-twice', 3_600_000);
    expectError(await app.inject(trigger('rotated-twice', firstKey, '{}')), 401, 'invalid_api_key');
    expectAccepted(await app.inject(trigger('rotated-twice', secondKey, '{}')));
  });

  test('a deleted automation is an unknown slug, and its key does not open a later one of the same slug', async () => {
    const oldKey = await createAutomation(store, 'deleted');
    await store.automations.delete('deleted');
    expect(await refusal('deleted', oldKey)).toEqual(await refusal('never-created', mintApiKey()));
    const newKey = await createAutomation(store, 'deleted');
    expectError(await app.inject(trigger('deleted', oldKey, '{}')), 401, 'invalid_api_key');
    expectAccepted(await app.inject(trigger('deleted', newKey, '{}')));
  });
});

async function rotate(slug: string, graceMs: number): Promise<string> {
  const rotated = await store.automations.rotateKey(slug, graceMs);
  if (rotated.status !== 'rotated') throw new Error(`${slug} does not exist`);
  return rotated.apiKey;
}
