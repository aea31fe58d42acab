import { describe, expect, test } from 'vitest';
import { ERRORS } from '../../src/core/errors.ts';
import { readSite } from '../../src/pages/site.ts';
import { openTestApp } from '../support/app.ts';
import { anchorsIn, linksIn } from '../support/pages.ts';

const { app } = openTestApp();
const ORIGIN = 'http://orc.example.com';

/** What a page and all that it loads may weigh together, in bytes. */
const MAX_PAGE_BYTES = 32_000;

const paths = readSite().pages.map(({ path }) => path);

function get(url: string, accept?: string) {
  return app.inject({ url, headers: { host: 'orc.example.com', ...(accept !== undefined && { accept }) } });
}

test('there are six pages', () => {
  expect(paths).toEqual(['/', '/docs', '/docs/errors', '/docs/recipes', '/docs/events', '/docs/operate']);
});

describe.each(paths)('the page at %s', (path) => {
  test('is a complete HTML document with one title, one heading and its language', async () => {
    const { body } = await get(path, 'text/html');
    expect(body).toMatch(/^<!doctype html>\n<html lang="en">/);
    for (const element of ['title', 'h1', 'main']) {
      expect(body.match(new RegExp(`<${element}[ >]`, 'g'))).toHaveLength(1);
    }
  });

  test('has no script or style in it, and its policy allows none but those of this service', async () => {
    const { headers, body } = await get(path, 'text/html');
    expect(String(headers['content-security-policy']).split(';')).toEqual([
      "default-src 'none'",
      "style-src 'self'",
      "script-src 'self'",
      "img-src 'self'",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ]);
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(body).not.toMatch(/<script(?! src="\/assets\/)|<style|\sstyle=|\son\w+=/);
  });

  test(`weighs less than ${MAX_PAGE_BYTES} bytes with all that it loads, and loads it from this service`, async () => {
    const { body } = await get(path, 'text/html');
    const loaded = body.matchAll(/<(?:link rel="(?:icon|stylesheet)" href|script src|img src)="([^"]+)"/g);
    const urls = [...new Set([...loaded].map(([, url]) => url ?? ''))];
    expect(urls).toEqual(['/assets/icon.svg', '/assets/page.css', '/assets/page.js']);
    const assets = await Promise.all(urls.map((url) => get(url)));
    const bytes = [body, ...assets.map((asset) => asset.body)].map((text) => Buffer.byteLength(text));
    expect(bytes.reduce((sum, each) => sum + each)).toBeLessThan(MAX_PAGE_BYTES);
  });

  test('is Markdown without HTML and without relative links to other pages', async () => {
    const { body } = await get(path, 'text/markdown');
    expect(body).toMatch(/^# \S.*\n\n\S/);
    expect(body.replace(/```.*?```/gs, '')).not.toMatch(/<\/?(html|p|div|a|span|h\d)\b/);
    for (const link of linksIn(body)) expect(link).toMatch(/^(#|https?:\/\/)/);
  });

  test('leaves no placeholder for the origin', async () => {
    for (const accept of ['text/html', 'text/markdown']) {
      expect((await get(path, accept)).body).not.toContain('base-url');
    }
  });

  test('shows no Host header that is longer than the name of a host', async () => {
    const { body } = await app.inject({ url: '/', headers: { host: 'a'.repeat(254) } });
    expect(body).toContain('http://localhost/orc/health');
    expect(body).not.toContain('aaa');
  });
});

test('a slash at the end of a page, and /favicon.ico, lead to where they should', async () => {
  for (const path of paths.filter((each) => each !== '/')) {
    const { statusCode, headers } = await get(`${path}/`);
    expect([statusCode, headers.location, headers['cache-control']]).toEqual([308, path, 'no-cache']);
  }
  const { headers } = await get('/favicon.ico');
  expect((await get(String(headers.location))).headers['content-type']).toContain('image/svg+xml');
});

test('the first page shows a trigger and a health check under the origin it was asked at', async () => {
  const { body } = await get('/', 'text/markdown');
  expect(body).toContain(`curl -X POST ${ORIGIN}/orc/api/automation-triggers/`);
  expect(body).toContain(`curl ${ORIGIN}/orc/health`);
  expect(body).toMatch(/-H ["']x-api-key: /);
  expect(body).toContain("-H 'content-type: application/json'");
});

test('the page of errors has for each of them a section with cause, cure and the answer', async () => {
  const { body } = await get('/docs/errors', 'text/markdown');
  const sections = new Map(body.split(/^## /m).map((section) => [section.split('\n', 1)[0], section]));
  for (const [error, { statusCode, message, hint }] of Object.entries(ERRORS)) {
    const section = sections.get(`${statusCode} ${error}`) ?? '';
    expect(section, error).toMatch(/\n\*\*Cause\.\*\* \S.*\.\n\n\*\*Cure\.\*\* \S.*\.\n/);
    const [, answer = ''] = /```json\n(.*?)```/s.exec(section) ?? [];
    expect(JSON.parse(answer)).toEqual({ statusCode, error, message, hint });
  }
  expect(sections.size).toBe(Object.keys(ERRORS).length + 1);
});

describe('a Host header that is no host', () => {
  test.each(['text/html', 'text/markdown'])('is never shown in %s', async (accept) => {
    const headers = { host: '"><script>alert(1)</script>', accept };
    const { body } = await app.inject({ url: '/', headers });
    expect(body).not.toContain('alert(1)');
    expect(body).toContain('http://localhost/orc/health');
  });
});

describe('what a trusted proxy says of the origin', () => {
  const { app: proxied } = openTestApp({ trustedProxies: ['127.0.0.1'] });
  const shown = async (url: string, headers: Record<string, string>) => {
    const { body } = await proxied.inject({ url, headers: { host: 'internal:8080', ...headers } });
    return [...new Set(body.match(/[^\s"'`(<>]*:\/\/[^\s"'`]*(?=\/orc\/health)/g))];
  };
  const label = 'a'.repeat(63);

  test.each([
    ['https', 'https'],
    ['HTTPS', 'https'],
    ['http', 'http'],
    ['javascript', 'http'],
    ['https://evil.example/?', 'http'],
    ['x'.repeat(8000), 'http'],
    ['wss', 'http'],
    ['"><script>', 'http'],
    ['https, javascript', 'http'],
    ['', 'http'],
  ])('as protocol is shown when that is http or https: %s', async (protocol, expected) => {
    for (const url of ['/', '/llms.txt', '/llms-full.txt']) {
      const origins = await shown(url, { 'x-forwarded-proto': protocol });
      expect(origins).toEqual([`${expected}://internal:8080`]);
    }
  });

  test.each([
    ['orc.example.com', 'orc.example.com'],
    ['orc.example.com:8443', 'orc.example.com:8443'],
    ['my_service', 'my_service'],
    ['192.0.2.1:80', '192.0.2.1:80'],
    ['[2001:db8::1]:8080', '[2001:db8::1]:8080'],
    [`${label}.example.com`, `${label}.example.com`],
    [`${label}a.example.com`, undefined],
    [Array(5).fill(label).join('.'), undefined],
    ['a'.repeat(8000), undefined],
    ['evil.example/path', undefined],
    ['user@evil.example', undefined],
    ['evil.example:99999', undefined],
    ['evil.example:', undefined],
    ['evil..example', undefined],
    ['-evil.example', undefined],
    ['192.0.2.300', undefined],
    ['[::1', undefined],
    ['[1:2:3]', undefined],
    ['[fe80::1%eth0]', undefined],
    ['"><script>', undefined],
    ['[click me](javascript:alert)', undefined],
  ])(
    'as host is shown when that is one, else the Host header: %s',
    async (host, expected = 'internal:8080') => {
      for (const url of ['/', '/llms.txt']) {
        expect(await shown(url, { 'x-forwarded-host': host })).toEqual([`http://${expected}`]);
      }
    },
  );
});

describe('/llms.txt', () => {
  test('is text in the form of llmstxt.org: one title, a summary, and sections of links', async () => {
    const answer = await get('/llms.txt');
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toBe('text/plain; charset=utf-8');
    const [beginning = '', ...sections] = answer.body.split(/^(?=## )/m);
    const [title, empty, summary] = beginning.split('\n');
    expect(title).toMatch(/^# \S/);
    expect(empty).toBe('');
    expect(summary).toMatch(/^> \S/);
    expect(answer.body.match(/^#+ /gm)).toEqual(['# ', ...sections.map(() => '## ')]);
    expect(sections.length).toBeGreaterThan(0);
    for (const section of sections) {
      const [heading, ...lines] = section.trim().split('\n').filter(Boolean);
      expect(heading).toMatch(/^## \S/);
      expect(lines.length).toBeGreaterThan(0);
      for (const line of lines) expect(line).toMatch(/^- \[[^\]]+\]\(https?:\/\/[^)\s]+\)(: \S.*)?$/);
    }
  });

  test('names both endpoints and the header, and links every page as Markdown', async () => {
    const { body } = await get('/llms.txt');
    expect(body).toContain(`POST ${ORIGIN}/orc/api/automation-triggers/{slug}`);
    expect(body).toContain(`GET ${ORIGIN}/orc/health`);
    expect(body).toContain('x-api-key');
    for (const { twin } of readSite().pages) expect(linksIn(body)).toContain(`${ORIGIN}${twin}`);
  });
});

test('/llms-full.txt is all pages in one', async () => {
  const full = await get('/llms-full.txt');
  expect(full.headers['content-type']).toBe('text/plain; charset=utf-8');
  for (const path of paths) {
    expect(full.body).toContain(`<!-- ${ORIGIN}${path} -->`);
    expect(full.body).toContain((await get(path, 'text/markdown')).body);
  }
});

describe('what is linked exists, anchors included:', () => {
  /** Follows a link of this service as a browser does. */
  async function expectPlace(link: string, from: string): Promise<void> {
    const { pathname, hash } = new URL(link, `${ORIGIN}${from}`);
    const answer = await get(pathname, 'text/html, */*;q=0.1');
    expect([link, answer.statusCode]).toEqual([link, 200]);
    if (hash !== '')
      expect([link, anchorsIn(answer.body)]).toEqual([link, expect.arrayContaining([hash.slice(1)])]);
  }

  /** The only other places that the pages lead to. */
  const ELSEWHERE = [
    'https://openapi-ts.dev',
    'https://www.rfc-editor.org/rfc/rfc7240#section-4.2',
    'https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1',
    'https://www.standardwebhooks.com',
    'https://www.w3.org/TR/trace-context/',
  ];

  const texts: [path: string, accept: string][] = [
    ...paths.flatMap((path): [string, string][] => [
      [path, 'text/html'],
      [path, 'text/markdown'],
    ]),
    ['/llms.txt', 'text/plain'],
    ['/llms-full.txt', 'text/plain'],
  ];

  test.each(texts)('in %s as %s', async (path, accept) => {
    const links = linksIn((await get(path, accept)).body).filter((link) => !ELSEWHERE.includes(link));
    expect(links.length).toBeGreaterThan(0);
    // In the file of all pages, a link within a page leads to a page of its own.
    const inPage = (link: string) => path === '/llms-full.txt' && link.startsWith('#');
    for (const link of links.filter((each) => !inPage(each))) {
      expect(link).toMatch(new RegExp(`^([/#]|${ORIGIN}/)`));
      await expectPlace(link, path);
    }
  });

  test('in every hint, each of which names what resolves the situation', async () => {
    for (const [id, { hint }] of Object.entries(ERRORS)) {
      const places = hint.match(/(?<![\w<])\/(?:docs|orc|openapi|llms)[\w/.#-]*[\w]/g) ?? [];
      const isNamed = places.length > 0;
      expect([id, isNamed]).toEqual([id, true]);
      for (const place of places) await expectPlace(place, '/');
    }
  });

  test('in the descriptions of the OpenAPI document, which links the documentation', async () => {
    const { body } = await get('/openapi.json');
    expect(JSON.parse(body).externalDocs.url).toBe(`${ORIGIN}/docs`);
    const places = body.match(/\/docs[\w/#-]*/g) ?? [];
    expect(places.length).toBeGreaterThan(2);
    for (const place of places) await expectPlace(place, '/');
  });
});

describe('with PUBLIC_URL', () => {
  const { app: configured } = openTestApp({ publicUrl: 'https://api.example.com/' });

  test.each(['/', '/llms.txt', '/llms-full.txt'])(
    '%s shows that origin, whatever the Host header says',
    async (url) => {
      const { body } = await configured.inject({ url, headers: { host: 'other.example.com' } });
      expect(body).toContain('https://api.example.com/orc/health');
      expect(body).not.toContain('other.example.com');
      expect(body).not.toContain('api.example.com//');
    },
  );
});

describe('with a PUBLIC_URL that means something in HTML', () => {
  const { app: configured } = openTestApp({ publicUrl: 'https://<b>"&$1' });

  test('HTML shows it escaped, and Markdown as it is', async () => {
    const html = await configured.inject({ url: '/', headers: { accept: 'text/html' } });
    expect(html.body).toContain('https://&lt;b>&quot;&amp;$1/orc/health');
    const markdown = await configured.inject({ url: '/', headers: { accept: 'text/markdown' } });
    expect(markdown.body).toContain('https://<b>"&$1/orc/health');
  });
});
