import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import type { InjectOptions } from 'fastify';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { buildConsole } from '../../src/console/app.ts';
import { createLogger } from '../../src/logger.ts';
import { openTestConsole, SETTINGS } from '../support/console.ts';
import { memoryLogger } from '../support/memory-logger.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const { app, store, cookies } = openTestConsole();

/** Every route of the console, new ones included. */
const routes: { method: string; url: string }[] = [];
const listing = buildConsole({ store, logger: createLogger('silent', 'console'), settings: SETTINGS });
listing.addHook('onRoute', ({ method, url }) => {
  routes.push(...[method].flat().map((each) => ({ method: each, url })));
});

beforeAll(async () => {
  await listing.ready();
  await createAutomation(store, 'deploy');
});
afterAll(() => listing.close());

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
const OWN_PAGE = { host: 'localhost:3001', 'sec-fetch-site': 'same-origin', ...FORM };

/** A path of a route, with something for each parameter. */
const pathOf = (url: string) => url.replace(/:\w+/g, 'deploy');

/** What nobody may change without the right to: Redis as it is, apart from what a session's use moves. */
async function everything(): Promise<string> {
  const found = (await store.redis.keys(`{${store.prefix}}*`)).filter((key) => !/:session:|minute/.test(key));
  const values = await Promise.all(
    found
      .sort()
      .map(async (key) => [key, (await store.redis.dump(key))?.length, (await store.redis.pttl(key)) > 0]),
  );
  return JSON.stringify(values);
}

/** The answer in short. */
async function statusOf(options: InjectOptions): Promise<number> {
  return (await app.inject(options)).statusCode;
}

test('without a session, every route but the login answers 401 with the same page, and does nothing', async () => {
  expect(routes.length).toBeGreaterThan(15);
  const before = await everything();
  const pages = new Set<string>();
  for (const { method, url } of routes) {
    if (url.startsWith('/assets/') || url.startsWith('/login')) continue;
    const answer = await app.inject({ method: method as 'GET', url: pathOf(url), headers: OWN_PAGE });
    expect(`${method} ${url} ${answer.statusCode}`).toBe(`${method} ${url} 401`);
    expect(answer.headers['www-authenticate']).toBeDefined();
    if (method !== 'HEAD') pages.add(answer.body.replace(answer.headers['x-request-id'] as string, ''));
  }
  expect(pages.size).toBe(1);
  expect(await everything()).toBe(before);
});

test('every page carries the headers that keep others out of it, and is kept by no cache', async () => {
  const headers = {
    'content-security-policy':
      "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'cache-control': 'no-store',
    'x-request-id': expect.any(String),
  };
  for (const url of ['/', '/automations', '/nothing', '/login/x']) {
    for (const cookie of ['', cookies.admin]) {
      const answer = await app.inject({ url, headers: { ...OWN_PAGE, cookie } });
      expect(answer.headers).toMatchObject(headers);
      // Nothing inline.
      expect(answer.body).not.toMatch(/<script(?! src=)|<style|style=|onclick=|javascript:/i);
    }
  }
});

describe('a page of another site', () => {
  const elsewhere = [
    ['says that it is another site', { 'sec-fetch-site': 'cross-site' }],
    ['is on a neighbouring name', { 'sec-fetch-site': 'same-site' }],
    ['says that nobody asked for it', { 'sec-fetch-site': 'none' }],
    ['says both', { 'sec-fetch-site': 'cross-site', origin: 'http://localhost:3001' }],
    ['has another origin', { origin: 'http://evil.example' }],
    ['has another port', { origin: 'http://localhost:8080' }],
    ['has another scheme', { origin: 'https://localhost:3001' }],
    ['hides its origin', { origin: 'null' }],
    ['says nothing', {}],
  ] as const;

  test.each(elsewhere)('that %s cannot change anything', async (_, headers) => {
    const before = await everything();
    for (const { method, url } of routes.filter((route) => !['GET', 'HEAD'].includes(route.method))) {
      const answer = await app.inject({
        method: method as 'POST',
        url: pathOf(url),
        headers: { host: 'localhost:3001', ...FORM, cookie: cookies.admin, ...headers },
        payload: 'slug=deploy',
      });
      expect(`${method} ${url} ${answer.statusCode}`).toBe(`${method} ${url} 403`);
      expect(answer.body).toContain('The request came from another site');
    }
    expect(await everything()).toBe(before);
  });

  test('cannot load pages and data as parts of its own, but may link to them', async () => {
    const headers = { host: 'localhost:3001', cookie: cookies.admin, 'sec-fetch-site': 'cross-site' };
    const parts = [
      { 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': 'script' },
      { 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' },
      { 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' },
    ];
    for (const part of parts)
      expect(await statusOf({ url: '/', headers: { ...headers, ...part } })).toBe(403);
    const link = { ...headers, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
    expect(await statusOf({ url: '/', headers: link })).toBe(200);
  });

  test('cannot change anything by a GET: reading every page leaves Redis as it was', async () => {
    const before = await everything();
    for (const { method, url } of routes.filter((route) => ['GET', 'HEAD'].includes(route.method))) {
      // A stream of events has no end to wait for.
      if (/events|stream|live/.test(url)) continue;
      await app.inject({
        method: method as 'GET',
        url: pathOf(url),
        headers: { ...OWN_PAGE, cookie: cookies.admin },
      });
    }
    expect(await everything()).toBe(before);
  });
});

test('a form of the console works where browsers say no more than the Origin: on plain http in a LAN', async () => {
  const lan = buildConsole({
    store,
    logger: createLogger('silent', 'console'),
    settings: { ...SETTINGS, url: 'http://orc.lan:3001' },
  });
  const headers = { host: 'orc.lan:3001', ...FORM };
  const post = async (origin: string) =>
    (await lan.inject({ method: 'POST', url: '/login', headers: { ...headers, origin }, payload: 'token=x' }))
      .statusCode;
  expect(await post('http://orc.lan:3001')).toBe(401);
  expect(await post('http://evil.example:3001')).toBe(403);
  await lan.close();
});

test.each([
  'evil.example',
  'evil.example:3001',
  'localhost.evil.example',
  '127.0.0.1.evil.example:3001',
  'localhost@evil.example',
  'evil.example#localhost',
  '10.0.0.1:3001',
  '[fe80::1]:3001',
])('under the host %j the console answers nothing but that it is another one', async (host) => {
  const before = await everything();
  for (const url of ['/', '/login/x', '/assets/x', '/nothing']) {
    const answer = await app.inject({ url, headers: { ...OWN_PAGE, host, cookie: cookies.admin } });
    expect(`${url} ${answer.statusCode}`).toBe(`${url} 421`);
    expect(answer.body).toContain('set CONSOLE_URL');
    // Not the name alone: the random id of a request may contain its letters.
    expect(answer.body).not.toContain('ada (admin)');
  }
  expect(await statusOf({ method: 'POST', url: '/login', headers: { ...OWN_PAGE, host } })).toBe(421);
  expect(await everything()).toBe(before);
});

test.each([
  'localhost:3001',
  'LOCALHOST:3001',
  '127.0.0.1:3001',
  '[::1]:3001',
  'localhost:9999',
  'localhost',
])(
  'under %s, a name of this machine that no other site can have, the console answers: tunnels change the port',
  async (host) => {
    expect(await statusOf({ url: '/', headers: { ...OWN_PAGE, host, cookie: cookies.admin } })).toBe(200);
  },
);

test('a viewer cannot change anything, and does not get the forms for it', async () => {
  const before = await everything();
  for (const { method, url } of routes.filter((route) => !['GET', 'HEAD'].includes(route.method))) {
    if (url === '/login' || url === '/logout') continue;
    const answer = await app.inject({
      method: method as 'POST',
      url: pathOf(url),
      headers: { ...OWN_PAGE, cookie: cookies.viewer },
      payload: 'slug=deploy',
    });
    expect(`${method} ${url} ${answer.statusCode}`).toBe(`${method} ${url} 403`);
    expect(answer.body).toContain('Only admins may do this');
  }
  expect(await statusOf({ url: '/new-automation', headers: { ...OWN_PAGE, cookie: cookies.viewer } })).toBe(
    403,
  );
  expect(await everything()).toBe(before);
});

describe('a session', () => {
  const open = async (cookie: string, url = '/') => statusOf({ url, headers: { ...OWN_PAGE, cookie } });

  /** Makes an operator and logs it in by the pages. */
  async function logIn(name: string): Promise<{ cookie: string; setCookie: string; link: string }> {
    await store.operators.add(name, 'admin');
    const link = (await store.operators.createLink(name))?.token ?? '';
    const answer = await app.inject({
      method: 'POST',
      url: '/login',
      headers: OWN_PAGE,
      payload: `token=${link}`,
    });
    expect([answer.statusCode, answer.headers.location]).toEqual([303, '/']);
    const setCookie = String(answer.headers['set-cookie']);
    return { cookie: setCookie.split(';', 1)[0] ?? '', setCookie, link };
  }

  test('is in a cookie that scripts and other sites do not get', async () => {
    const { setCookie, cookie } = await logIn('cookie');
    expect(setCookie).toMatch(/^orc_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax$/);
    expect(await open(cookie)).toBe(200);
  });

  test('is of this host over TLS only where the console is at https', async () => {
    const url = 'https://console.example.com';
    const secure = buildConsole({
      store,
      logger: createLogger('silent', 'console'),
      settings: { ...SETTINGS, url },
    });
    await store.operators.add('tls', 'admin');
    const link = (await store.operators.createLink('tls'))?.token;
    const headers = { ...OWN_PAGE, host: 'console.example.com' };
    const answer = await secure.inject({ method: 'POST', url: '/login', headers, payload: `token=${link}` });
    const setCookie = String(answer.headers['set-cookie']);
    expect(setCookie).toMatch(
      /^__Host-orc_session=[\w-]{43}; Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax; Secure$/,
    );
    // The name without the prefix, which a neighbouring name could have set, opens nothing.
    const token = /=([\w-]{43})/.exec(setCookie)?.[1];
    const get = async (cookie: string) =>
      (await secure.inject({ url: '/', headers: { ...headers, cookie } })).statusCode;
    expect(await get(`__Host-orc_session=${token}`)).toBe(200);
    expect(await get(`orc_session=${token}`)).toBe(401);
    await secure.close();
  });

  test('ends at once when its operator is removed, also when another one gets the name', async () => {
    const { cookie } = await logIn('gone');
    const link = (await store.operators.createLink('gone'))?.token;
    expect(await open(cookie)).toBe(200);
    await store.operators.remove('gone');
    expect(await open(cookie)).toBe(401);
    await store.operators.add('gone', 'admin');
    expect(await open(cookie)).toBe(401);
    const late = await app.inject({
      method: 'POST',
      url: '/login',
      headers: OWN_PAGE,
      payload: `token=${link}`,
    });
    expect(late.statusCode).toBe(401);
  });

  test('ends for all its cookies by operators sessions --end, and for one by logging out, as a viewer, too', async () => {
    const [first, second] = [await logIn('both'), await logIn('both')];
    await store.operators.endSessions('both');
    expect([await open(first.cookie), await open(second.cookie)]).toEqual([401, 401]);

    const [third, fourth] = [await logIn('both'), await logIn('both')];
    const logout = await app.inject({
      method: 'POST',
      url: '/logout',
      headers: { ...OWN_PAGE, cookie: third.cookie },
    });
    expect(logout.statusCode).toBe(303);
    expect(String(logout.headers['set-cookie'])).toContain('Max-Age=0');
    expect([await open(third.cookie), await open(fourth.cookie)]).toEqual([401, 200]);
    await store.operators.add('watcher', 'viewer');
    const token = (await store.operators.createLink('watcher'))?.token ?? '';
    const session = await store.operators.login(token, { address: '::1', userAgent: '' });
    const headers = { ...OWN_PAGE, cookie: `orc_session=${session?.token}` };
    expect(await statusOf({ method: 'POST', url: '/logout', headers })).toBe(303);
  });

  test('is kept alive by what its operator asks for, and not by what a page asks by itself', async () => {
    const { cookie } = await logIn('idle');
    const [hash = ''] = await store.redis.zrange(store.keys.sessionsOf('idle'), '0', '-1');
    const key = store.keys.session(hash);
    const soonMs = 3_600_000;
    await store.redis.pexpire(key, soonMs);
    const headers = { ...OWN_PAGE, cookie };
    expect(await statusOf({ url: '/', headers: { ...headers, 'x-by-itself': '1' } })).toBe(200);
    expect(await store.redis.pttl(key)).toBeLessThanOrEqual(soonMs);
    expect(await statusOf({ url: '/', headers })).toBe(200);
    expect(await store.redis.pttl(key)).toBeGreaterThan(soonMs);
  });

  test('is stored as a hash, as its link is: who reads Redis cannot log in', async () => {
    const { cookie, link } = await logIn('hashed');
    await store.operators.createLink('hashed');
    const token = cookie.replace('orc_session=', '');
    const found = await store.redis.keys(`{${store.prefix}}*`);
    expect(found.join()).not.toContain(token);
    for (const key of found.filter((each) => /:(session|login-link|operators|sessions)/.test(each))) {
      const content = String(await store.redis.dump(key));
      expect(content).not.toContain(token);
      expect(content).not.toContain(link);
    }
  });
});

describe('a login link', () => {
  const use = (token: string | undefined) =>
    app.inject({ method: 'POST', url: '/login', headers: OWN_PAGE, payload: `token=${token}` });

  test('is not used up by opening it, and works once: a stolen one does not work behind its operator', async () => {
    const link = (await store.operators.createLink('ada'))?.token;
    for (let previews = 0; previews < 3; previews += 1) {
      const preview = await app.inject({ url: `/login/${link}`, headers: { host: 'localhost:3001' } });
      expect(preview.statusCode).toBe(200);
      expect(preview.body).toContain('<button');
      expect(preview.headers['set-cookie']).toBeUndefined();
    }
    const results = await Promise.all(Array.from({ length: 5 }, () => use(link)));
    expect(results.map(({ statusCode }) => statusCode).sort()).toEqual([303, 401, 401, 401, 401]);
    expect((await use(link)).body).toContain('It was used already, has expired, or is incomplete.');
  });

  test('ends after 15 minutes', async () => {
    const link = (await store.operators.createLink('ada'))?.token;
    for (const key of await store.redis.keys(`{${store.prefix}}:login-link:*`)) {
      expect(await store.redis.pttl(key)).toBeGreaterThan(14 * 60_000);
      expect(await store.redis.pttl(key)).toBeLessThanOrEqual(15 * 60_000);
      await store.redis.pexpire(key, 0);
    }
    expect((await use(link)).statusCode).toBe(401);
  });

  test('that never was looks like one that is: nobody learns of links by opening them', async () => {
    const link = (await store.operators.createLink('ada'))?.token ?? '';
    const other = `${link.startsWith('A') ? 'B' : 'A'}${link.slice(1)}`;
    const page = async (token: string) => {
      const { statusCode, body } = await app.inject({
        url: `/login/${token}`,
        headers: { host: 'localhost:3001' },
      });
      return `${statusCode} ${body.replace(token, '')}`;
    };
    expect(await page(other)).toBe(await page(link));
  });

  test('is in no line of the log', async () => {
    const lines: string[] = [];
    const logger = createLogger('debug', 'console');
    const logging = buildConsole({
      store,
      logger: Object.assign(Object.create(logger), {
        child: () =>
          Object.assign(Object.create(logger), {
            info: (...args: unknown[]) => lines.push(JSON.stringify(args)),
            debug: (...args: unknown[]) => lines.push(JSON.stringify(args)),
            error: (...args: unknown[]) => lines.push(JSON.stringify(args)),
          }),
      }),
      settings: SETTINGS,
    });
    const link = (await store.operators.createLink('ada'))?.token ?? '';
    await logging.inject({ url: `/login/${link}`, headers: { host: 'localhost:3001' } });
    await logging.inject({ method: 'POST', url: '/login', headers: OWN_PAGE, payload: `token=${link}` });
    await logging.inject({ url: `/login/${link}/x`, headers: { host: 'localhost:3001' } });
    await logging.close();
    expect(lines.length).toBeGreaterThan(2);
    expect(lines.join()).toContain('/login/:token');
    expect(lines.join()).not.toContain(link);
  });
});

test('in a flood of strangers, a hundred requests a second have a line, and the others are counted', async () => {
  const { logger, text } = memoryLogger();
  const flooded = buildConsole({ store, logger, settings: SETTINGS });
  const startedAt = performance.now();
  for (let sent = 0; sent < 2000; sent += 1) {
    await flooded.inject({ url: `/${sent}`, headers: { host: 'elsewhere.example' } });
  }
  const windows = Math.ceil((performance.now() - startedAt) / 1000) + 1;
  await flooded.close();
  expect(text.length).toBeLessThanOrEqual(windows * 101);
  const lines = text.map((line) => JSON.parse(line) as { count?: number });
  expect(lines.reduce((sum, { count = 1 }) => sum + count, 0)).toBe(2000);
});

test('10,000 guesses are bounded: after twenty a minute an address is told to wait, and Redis is not asked', {
  timeout: 120_000,
}, async () => {
  const own = buildConsole({
    store,
    logger: createLogger('silent', 'console'),
    settings: { ...SETTINGS, trustedProxies: ['127.0.0.1'] },
  });
  const { port } = new URL(await own.listen({ port: 0, host: '127.0.0.1' }));
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  /** Sends a request through a proxy that says from which address. */
  const send = async (from: string, { method = 'GET', path = '/', headers = {}, body = '' }) => {
    const all = { ...OWN_PAGE, 'x-forwarded-for': from, ...headers };
    const sent = request({ host: '127.0.0.1', port, agent, method, path, headers: all }).end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.resume();
    await once(response, 'close');
    return { statusCode: response.statusCode ?? 0, headers: response.headers };
  };
  const guess = (from: string, token: string) =>
    send(from, { method: 'POST', path: '/login', body: `token=${token}` });
  const statuses = new Map<number, number>();
  const asking = vi.spyOn(store.redis, 'getdel');
  onTestFinished(() => asking.mockRestore());
  const beganAt = performance.now();
  let left = 10_000;
  const guesser = async () => {
    while (left > 0) {
      left -= 1;
      const { statusCode, headers } = await guess('192.0.2.7', randomBytes(32).toString('base64url'));
      statuses.set(statusCode, (statuses.get(statusCode) ?? 0) + 1);
      if (statusCode === 429) expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    }
  };
  const guessers = 20;
  await Promise.all(Array.from({ length: guessers }, guesser));
  const minutes = Math.ceil((performance.now() - beganAt) / 60_000);
  // Those that are on their way when the twentieth fails are judged, too.
  const most = (20 + guessers) * minutes;
  expect(statuses.get(401)).toBeGreaterThan(0);
  expect(statuses.get(401)).toBeLessThanOrEqual(most);
  expect((statuses.get(401) ?? 0) + (statuses.get(429) ?? 0)).toBe(10_000);
  expect(asking.mock.calls.length).toBeLessThanOrEqual(most);

  // Others log in meanwhile, and who is logged in at that address stays so.
  const link = (await store.operators.createLink('ada'))?.token ?? '';
  expect((await guess('192.0.2.8', link)).statusCode).toBe(303);
  expect((await send('192.0.2.7', { headers: { cookie: cookies.admin } })).statusCode).toBe(200);
  // Guessing sessions counts as well.
  const cookie = `orc_session=${'B'.repeat(43)}`;
  expect((await send('192.0.2.7', { headers: { cookie } })).statusCode).toBe(429);
  agent.destroy();
  await own.close();
});

test.each([
  '//',
  '//automations',
  '/./automations/..',
  '/%2e%2e/etc/passwd',
  '/assets/../automations',
  '/assets/%2e%2e/%2e%2e/package.json',
  '/assets/..%2f..%2fpackage.json',
  '/Automations',
  '/automations/',
  '/automations;x',
  '/login/../automations',
  '/login/x/../../automations',
  '/logout',
  '/automations%00',
  '/index.html',
  '/.env',
  'http://evil.example/automations',
])('the path %s is no way around the login', async (path) => {
  await app.listen({ port: 0, host: '127.0.0.1' }).catch(() => undefined);
  const { port } = app.server.address() as { port: number };
  const socket = connect(port, '127.0.0.1');
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: close\r\n\r\n`);
  const answer = await text(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 40[01] /);
  expect(answer).not.toMatch(/ada \(|deploy|"name"/);
});

test('a target that cannot be decoded is answered with a page in words, and its headers', async () => {
  const answer = await app.inject({ url: '/%zz', headers: { ...OWN_PAGE, cookie: cookies.admin } });
  expect(answer.statusCode).toBe(400);
  expect(answer.body).toContain('The request is not understood');
  expect(answer.headers['content-security-policy']).toContain("default-src 'none'");
});

test('other bodies than forms, and too large ones, are answered with pages in words', async () => {
  const post = (payload: string, type: string) =>
    app.inject({
      method: 'POST',
      url: '/login',
      headers: { ...OWN_PAGE, 'content-type': type },
      payload,
    });
  expect((await post('{"token":"x"}', 'application/json')).statusCode).toBe(415);
  expect((await post('token=x', 'text/plain')).statusCode).toBe(415);
  // Nobody needs to be logged in for this one, so it takes no more than a token.
  const large = await post(`token=${'x'.repeat(2000)}`, FORM['content-type']);
  expect([large.statusCode, large.body.includes('Too much at once')]).toEqual([413, true]);
});

describe('single sign-on', () => {
  const open = (settings: object, remoteAddress: string, headers: Record<string, string>) => {
    const behind = buildConsole({
      store,
      logger: createLogger('silent', 'console'),
      settings: { ...SETTINGS, ...settings },
    });
    return behind
      .inject({ url: '/', remoteAddress, headers: { host: 'localhost:3001', ...headers } })
      .finally(() => behind.close());
  };
  const sso = { userHeader: 'X-Forwarded-User', trustedProxies: ['10.0.0.0/8', '::1'] };

  test('a trusted proxy names an operator, whose role is the one that orc knows', async () => {
    const page = await open(sso, '10.1.2.3', { 'x-forwarded-user': 'vic' });
    expect([page.statusCode, page.body.includes('vic (viewer)')]).toEqual([200, true]);
    // IPv4 in IPv6, as sockets that listen on :: have it.
    expect((await open(sso, '::ffff:10.1.2.3', { 'x-forwarded-user': 'vic' })).statusCode).toBe(200);
  });

  test.each([
    ['from another address', sso, '192.0.2.1', { 'x-forwarded-user': 'ada' }, 401],
    [
      'from another address that says it was passed on',
      sso,
      '192.0.2.1',
      { 'x-forwarded-user': 'ada', 'x-forwarded-for': '10.1.2.3' },
      401,
    ],
    [
      'that orc was not told of',
      { trustedProxies: ['10.0.0.0/8'] },
      '10.1.2.3',
      { 'x-forwarded-user': 'ada' },
      401,
    ],
    [
      'without a trusted proxy',
      { userHeader: 'X-Forwarded-User' },
      '10.1.2.3',
      { 'x-forwarded-user': 'ada' },
      401,
    ],
    ['with a name that is no operator', sso, '10.1.2.3', { 'x-forwarded-user': 'mallory' }, 403],
    ['with two names', sso, '10.1.2.3', { 'x-forwarded-user': 'ada, mallory' }, 403],
    ['with no name', sso, '10.1.2.3', { 'x-forwarded-user': '' }, 403],
  ])('a header %s lets nobody in', async (_, settings, address, headers, statusCode) => {
    const page = await open(settings, address, headers as Record<string, string>);
    expect(page.statusCode).toBe(statusCode);
    expect(page.body).not.toContain('ada (');
  });
});

test('before there is an operator, every page says how to make one, and shows nothing', async () => {
  const empty = openTestStore();
  const fresh = buildConsole({ store: empty, logger: createLogger('silent', 'console'), settings: SETTINGS });
  const page = await fresh.inject({ url: '/automations', headers: OWN_PAGE });
  expect(page.statusCode).toBe(401);
  expect(page.body).toContain('orc operators add NAME --role admin');
  expect(page.body).not.toContain('<nav');
  await fresh.close();
});

test('while Redis is away or hangs, pages say so, with what to do', async () => {
  const away = openTestStore();
  /** The page that a console shows whose Redis answers like this. */
  const open = async (status: string, answer: () => Promise<never>) => {
    const broken = buildConsole({
      store: {
        ...away,
        redis: Object.assign(Object.create(away.redis), { status }),
        operators: new Proxy(away.operators, { get: () => answer }),
      },
      logger: createLogger('silent', 'console'),
      settings: SETTINGS,
    });
    return broken
      .inject({ url: '/', headers: { ...OWN_PAGE, cookie: cookies.admin } })
      .finally(() => broken.close());
  };
  const pages = await Promise.all([
    open('reconnecting', () => Promise.reject(new Error("Stream isn't writeable"))),
    open('ready', () => new Promise<never>(() => undefined)),
  ]);
  for (const { statusCode, headers, body } of pages) {
    expect([statusCode, headers['retry-after']]).toEqual([503, '5']);
    expect(body).toContain('Redis is away');
  }
});
