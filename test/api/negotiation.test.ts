import { describe, expect, test } from 'vitest';
import { readSite } from '../../src/pages/site.ts';
import { expectError, openTestApp } from '../support/app.ts';

const { app } = openTestApp();

const BROWSERS = [
  'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8',
  'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8',
];

const pages = readSite().pages.map(({ path, twin }) => [path, twin] as const);

function get(url: string, headers: Record<string, string> = {}, method: 'GET' | 'HEAD' = 'GET') {
  return app.inject({ method, url, headers });
}

describe('a page is HTML', () => {
  test.each([
    ...BROWSERS,
    'text/html',
    'Text/HTML;charset=utf-8',
    'text/html, text/markdown;q=0.5',
    'text/html, text/markdown',
    'text/*;q=0.5, text/html',
    'text/markdown;q=0, */*',
  ])('under Accept: %s', async (accept) => {
    const answer = await get('/docs', { accept });
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(answer.body).toMatch(/^<!doctype html>/);
  });
});

describe('a page is Markdown', () => {
  test.each([
    'text/markdown',
    'TEXT/MARKDOWN',
    'text/markdown; charset=utf-8',
    'text/markdown, text/html;q=0.9, */*;q=0.1',
    'text/html;q=0.5, text/markdown',
    'text/markdown, text/html',
    'text/html;q=0, text/*',
    'application/json, */*;q=0.1',
    'text/*',
    '*/*',
    '',
  ])('under Accept: %s', async (accept) => {
    const answer = await get('/docs', { accept });
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toBe('text/markdown; charset=utf-8');
    expect(answer.body).toMatch(/^# /);
  });

  test('without an Accept header', async () => {
    const { headers } = await get('/docs');
    expect(headers['content-type']).toBe('text/markdown; charset=utf-8');
  });
});

describe('a page that cannot be had in an acceptable form is a 406', () => {
  test.each([
    'image/png',
    'application/json',
    'text/html;q=0',
    '*/*;q=0',
    'text/html;q=0, text/markdown;q=0',
    'text/plain',
  ])('under Accept: %s, in JSON and for this Accept only', async (accept) => {
    const answer = await get('/docs', { accept });
    const { hint } = expectError(answer, 406, 'not_acceptable');
    expect(hint).toMatch(/text\/html.*text\/markdown/);
    expect(answer.headers['vary']).toBe('Accept');
  });
});

test.each(BROWSERS)('an error is JSON in a browser, too: %s', async (accept) => {
  expectError(await get('/nothing/here', { accept }), 404, 'not_found');
  expectError(
    await app.inject({ method: 'POST', url: '/docs', headers: { accept } }),
    405,
    'method_not_allowed',
  );
});

describe.each(pages)('%s and %s', (path, twin) => {
  test('tell caches in every form that the page depends on Accept, and its twin on nothing', async () => {
    for (const accept of ['text/html', 'text/markdown']) {
      expect((await get(path, { accept })).headers['vary']).toBe('Accept');
    }
    expect((await get(twin)).headers['vary']).toBeUndefined();
  });

  test('are the same Markdown, whatever the twin is asked for', async () => {
    const { body } = await get(path, { accept: 'text/markdown' });
    const answer = await get(twin, { accept: 'text/html' });
    expect(answer.headers['content-type']).toBe('text/markdown; charset=utf-8');
    expect(answer.body).toBe(body);
  });

  test('link each other as alternates', async () => {
    const html = await get(path, { accept: 'text/html' });
    expect(html.headers['link']).toBe(`<${twin}>; rel="alternate"; type="text/markdown"`);
    expect(html.body).toContain(`<link rel="alternate" type="text/markdown" href="${twin}">`);
    const markdown = await get(path, { accept: 'text/markdown' });
    expect(markdown.headers['link']).toBe(`<${path}>; rel="alternate"; type="text/html"`);
    expect(markdown.headers['content-location']).toBe(twin);
    expect((await get(twin)).headers['link']).toBe(`<${path}>; rel="alternate"; type="text/html"`);
  });
});

const documents = [
  ...pages.flatMap(([path, twin]) => [
    [path, 'text/html'],
    [path, 'text/markdown'],
    [twin, '*/*'],
  ]),
  ...['/llms.txt', '/llms-full.txt', '/openapi.json', ...Object.keys(readSite().assets)].map((path) => [
    path,
    '*/*',
  ]),
] as [string, string][];

describe.each(documents)('%s as %s', (url, accept) => {
  test('answers HEAD as GET, without the body', async () => {
    const full = await get(url, { accept });
    const head = await get(url, { accept }, 'HEAD');
    expect(head.statusCode).toBe(200);
    expect(head.body).toBe('');
    for (const name of ['content-type', 'content-length', 'etag', 'vary', 'link']) {
      expect(head.headers[name]).toBe(full.headers[name]);
    }
    expect(head.headers['content-length']).toBe(String(Buffer.byteLength(full.body)));
  });

  test('is a 304 without a body for who has it, and sent to who has another version', async () => {
    const { headers } = await get(url, { accept });
    const etag = String(headers['etag']);
    expect(etag).toMatch(/^"[\w-]{22}"$/);
    for (const method of ['GET', 'HEAD'] as const) {
      const answer = await get(url, { accept, 'if-none-match': etag }, method);
      expect([answer.statusCode, answer.body]).toEqual([304, '']);
      for (const name of ['etag', 'cache-control', 'vary', 'content-location']) {
        expect(answer.headers[name]).toBe(headers[name]);
      }
    }
    expect((await get(url, { accept, 'if-none-match': '"other"' })).statusCode).toBe(200);
  });
});

test.each([
  ['made weak by a proxy', (etag: string) => `W/${etag}`],
  ['among others', (etag: string) => `"other", ${etag}`],
  ['and any other', () => '*'],
])('a document is a 304 for its tag %s', async (_, ifNoneMatch) => {
  const { headers } = await get('/docs');
  expect((await get('/docs', { 'if-none-match': ifNoneMatch(String(headers['etag'])) })).statusCode).toBe(
    304,
  );
});

test('the two forms of a page have two tags, and so have two origins', async () => {
  const tags = await Promise.all([
    get('/docs', { accept: 'text/html', host: 'a.example' }),
    get('/docs', { accept: 'text/markdown', host: 'a.example' }),
    get('/docs', { accept: 'text/markdown', host: 'b.example' }),
  ]);
  expect(new Set(tags.map(({ headers }) => headers['etag'])).size).toBe(3);
});
