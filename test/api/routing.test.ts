import { describe, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { ERRORS } from '../../src/core/errors.ts';
import { expectError, openTestApp } from '../support/app.ts';

const { app } = openTestApp();

/** Every path that exists, with the value of `Allow`. */
const PATHS: [string, string][] = [
  ['/', 'GET, HEAD'],
  ['/llms.txt', 'GET, HEAD'],
  ['/openapi.json', 'GET, HEAD'],
  ['/orc/health', 'GET, HEAD'],
  ['/orc/api/automation-triggers/hello', 'POST'],
];

const METHODS = [
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'TRACE',
  'QUERY',
  'PROPFIND',
] as const;
type Method = 'GET';

const wrongMethods = PATHS.flatMap(([url, allow]) =>
  METHODS.filter((method) => !allow.split(', ').includes(method)).map(
    (method) => [method, url, allow] as const,
  ),
);

describe('a method that a path does not answer is a 405 with Allow:', () => {
  test.each(wrongMethods)('%s %s', async (method, url, allow) => {
    const answer = await app.inject({ method: method as Method, url });
    expect(answer.headers['allow']).toBe(allow);
    if (method === 'HEAD') expect(answer).toMatchObject({ statusCode: 405, body: '' });
    else expectError(answer, 405, 'method_not_allowed');
  });

  const bodies: [string, string, string][] = [
    ['malformed JSON', 'application/json', '{'],
    ['an empty JSON body', 'application/json', ''],
    ['a malformed content type', 'not a media type', '{}'],
    ['a media type that is not JSON', 'text/plain', 'text'],
    ['a body over the limit', 'application/json', ' '.repeat(262_145)],
  ];
  const withBodies = ['POST', 'PUT', 'PATCH', 'DELETE', 'QUERY'].flatMap((method) =>
    bodies
      .slice(0, method === 'POST' ? undefined : 1)
      .map(([body, type, payload]) => [method, body, type, payload] as const),
  );
  test.each(withBodies)('%s with %s, which nobody looks at', async (method, _body, type, payload) => {
    const request = { method: method as Method, headers: { 'content-type': type }, payload };
    expectError(await app.inject({ ...request, url: '/orc/health' }), 405, 'method_not_allowed');
    expectError(await app.inject({ ...request, url: '/nothing-here' }), 404, 'not_found');
  });

  test('a query changes nothing', async () => {
    const answer = await app.inject({ method: 'DELETE', url: '/orc/health?x=/y' });
    expectError(answer, 405, 'method_not_allowed');
    expect(answer.headers['allow']).toBe('GET, HEAD');
  });

  test('no key is needed to learn it, and a wrong one does not change it', async () => {
    const url = '/orc/api/automation-triggers/unknown';
    const headers = { 'x-api-key': mintApiKey() };
    expectError(await app.inject({ method: 'PUT', url, headers }), 405, 'method_not_allowed');
  });

  test('an empty slug is a slug here as it is for POST', async () => {
    const url = '/orc/api/automation-triggers/';
    expectError(await app.inject({ url }), 405, 'method_not_allowed');
    expectError(await app.inject({ method: 'POST', url }), 401, 'missing_api_key');
  });
});

describe('a path that does not exist is a 404:', () => {
  test.each([
    '/nothing-here',
    '/orc',
    '/orc/',
    '/orc/health/',
    '/orc/healthy',
    '/ORC/HEALTH',
    '//orc/health',
    '/openapi_json',
    '/openapi.json/',
    '/llms-txt',
    '/orc/api/automation-triggers',
    '/orc/api/automation-triggers/hello/',
    '/orc/api/automation-triggers/hello/runs',
    '/.env',
  ])('%s', async (url) => {
    for (const method of ['GET', 'POST', 'OPTIONS'] as const) {
      const answer = await app.inject({ method, url: `http://example.com${url}` });
      const { hint } = expectError(answer, 404, 'not_found');
      expect(hint).toMatch(/\/llms\.txt/);
      expect(answer.headers).not.toHaveProperty('allow');
    }
  });
});

describe('HEAD is answered wherever GET is,', () => {
  test.each(PATHS.filter(([, allow]) => allow.includes('HEAD')))(
    '%s: with the headers of GET',
    async (url) => {
      const get = await app.inject({ method: 'GET', url });
      const head = await app.inject({ method: 'HEAD', url });
      expect(get.statusCode).toBe(200);
      expect(head).toMatchObject({ statusCode: 200, body: '' });
      for (const name of [
        'content-type',
        'content-length',
        'cache-control',
        'vary',
        'content-security-policy',
      ]) {
        expect(head.headers[name]).toBe(get.headers[name]);
      }
    },
  );
});

describe('the catalogue of errors', () => {
  test.each(Object.entries(ERRORS))(
    '%s has a status, and a message and a hint for people',
    (id, definition) => {
      expect(id).toMatch(/^[a-z]+(_[a-z]+)*$/);
      expect(definition.statusCode).toBeGreaterThanOrEqual(400);
      expect(definition.statusCode).toBeLessThan(600);
      expect(definition.message).toMatch(/^[A-Z].*\.$/);
      expect(definition.hint).toMatch(/^[A-Z].*[.)]$/);
    },
  );

  test('tells every 429 and 503 when to try again', () => {
    for (const [id, definition] of Object.entries(ERRORS)) {
      const mayWait = [429, 503].includes(definition.statusCode);
      expect([id, 'retryAfterSeconds' in definition]).toEqual([id, mayWait]);
    }
  });

  test('names only paths that answer', async () => {
    const hints = Object.values(ERRORS).map(({ hint }) => hint);
    const paths = new Set(hints.flatMap((hint) => hint.match(/(?<=^|\s)\/[\w./#-]*\w/g) ?? []));
    expect([...paths]).toEqual(expect.arrayContaining(['/openapi.json', '/llms.txt', '/orc/health']));
    for (const path of paths) expect([path, (await app.inject(path)).statusCode]).toEqual([path, 200]);
  });
});
