import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { ERRORS } from '../../src/core/errors.ts';
import { openTestApp } from '../support/app.ts';

const { app } = openTestApp();
const ORIGIN = 'http://orc.example.com';

function get(url: string, accept?: string) {
  return app.inject({ url, headers: { host: 'orc.example.com', ...(accept !== undefined && { accept }) } });
}

describe('the page at /', () => {
  test.each([
    ['by nothing at all', undefined],
    ['by curl', '*/*'],
    ['by a browser', 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'],
    ['by who likes HTML better', 'text/html, text/markdown;q=0.5'],
    ['by who can read neither', 'image/png'],
  ])('is HTML when it is asked for %s', async (_, accept) => {
    const answer = await get('/', accept);
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(answer.body).toMatch(/^<!doctype html>/);
  });

  test.each([
    'text/markdown',
    'TEXT/MARKDOWN',
    'text/markdown, text/html;q=0.9, */*;q=0.1',
    'text/html;q=0.5, text/markdown',
  ])('is Markdown under Accept: %s', async (accept) => {
    const answer = await get('/', accept);
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toBe('text/markdown; charset=utf-8');
    expect(answer.body).toMatch(/^# orc\n/);
    expect(answer.body).not.toMatch(/<\/?(html|p|div|h\d)\b/);
  });

  test('tells caches that it depends on Accept, in both forms', async () => {
    for (const accept of ['text/html', 'text/markdown']) {
      expect((await get('/', accept)).headers['vary']).toMatch(/\bAccept\b/i);
    }
  });

  test('allows its own style by hash, and no script, frame or form', async () => {
    const { headers, body } = await get('/', 'text/html');
    const style = /<style>(.*?)<\/style>/s.exec(body)?.[1] ?? '';
    expect(style).not.toBe('');
    const hash = createHash('sha256').update(style).digest('base64');
    const policy = String(headers['content-security-policy']).split(';');
    expect(policy).toEqual(
      expect.arrayContaining([
        "default-src 'none'",
        `style-src 'sha256-${hash}'`,
        "base-uri 'none'",
        "frame-ancestors 'none'",
      ]),
    );
    expect(body).not.toMatch(/<script|\sstyle=|\son\w+=|<style[^>]+>/);
    expect(headers['x-content-type-options']).toBe('nosniff');
  });

  test('shows a trigger and a health check under the origin it was asked at', async () => {
    const { body } = await get('/', 'text/markdown');
    expect(body).toContain(`curl -X POST ${ORIGIN}/orc/api/automation-triggers/`);
    expect(body).toContain(`curl ${ORIGIN}/orc/health`);
    expect(body).toMatch(/-H 'x-api-key: /);
    expect(body).toContain("-H 'content-type: application/json'");
  });

  test('explains every error', async () => {
    const { body } = await get('/', 'text/markdown');
    for (const id of Object.keys(ERRORS)) expect(body).toContain(`| \`${id}\` | `);
  });

  test('never shows a Host header that is no host', async () => {
    for (const accept of ['text/html', 'text/markdown']) {
      const headers = { host: '"><script>alert(1)</script>', accept };
      const { body } = await app.inject({ url: '/', headers });
      expect(body).not.toContain('<script');
      expect(body).not.toContain('alert(1)');
      expect(body).toContain('http://localhost/orc/health');
    }
  });

  test('shows no Host header that is longer than the name of a host', async () => {
    const { body } = await app.inject({ url: '/', headers: { host: 'a'.repeat(254) } });
    expect(body).toContain('http://localhost/orc/health');
    expect(body).not.toContain('aaa');
  });
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

  test('names both endpoints and the header', async () => {
    const { body } = await get('/llms.txt');
    expect(body).toContain(`POST ${ORIGIN}/orc/api/automation-triggers/{slug}`);
    expect(body).toContain(`GET ${ORIGIN}/orc/health`);
    expect(body).toContain('x-api-key');
  });
});

describe('every link answers 200:', () => {
  test.each([
    ['of /llms.txt', '/llms.txt', undefined],
    ['of / in Markdown', '/', 'text/markdown'],
    ['of / in HTML', '/', 'text/html'],
  ])('%s', async (_, url, accept) => {
    const { body } = await get(url, accept);
    const links = [...body.matchAll(/\]\(([^)\s]+)\)|\shref="([^"]+)"/g)].map(
      ([, markdown, html]) => markdown ?? html ?? '',
    );
    expect(links.length).toBeGreaterThan(1);
    for (const link of links) {
      expect(link.startsWith('/') || link.startsWith(`${ORIGIN}/`)).toBe(true);
      expect([link, (await get(link.replace(ORIGIN, ''))).statusCode]).toEqual([link, 200]);
    }
  });
});

describe('with PUBLIC_URL', () => {
  const { app: configured } = openTestApp({ publicUrl: 'https://api.example.com/' });

  test.each(['/', '/llms.txt'])('%s shows that origin, whatever the Host header says', async (url) => {
    const { body } = await configured.inject({ url, headers: { host: 'other.example.com' } });
    expect(body).toContain('https://api.example.com/orc/health');
    expect(body).not.toContain('other.example.com');
    expect(body).not.toContain('api.example.com//');
  });
});
