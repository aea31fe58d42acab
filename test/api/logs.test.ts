import type { InjectOptions } from 'fastify';
import { symbols } from 'pino';
import { beforeAll, describe, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { createLogger } from '../../src/logger.ts';
import { expectAccepted, expectError, openTestApp, trigger } from '../support/app.ts';
import { listenRaw } from '../support/raw-http.ts';
import { createAutomation } from '../support/store.ts';

type LogLine = Record<string, unknown>;

/** The production logger, writing into memory. */
function memoryLogger() {
  const text: string[] = [];
  let wake = () => {};
  const logger = createLogger('debug', 'api');
  const write = (line: string) => {
    text.push(line);
    wake();
  };
  Object.assign(logger, { [symbols.streamSym]: { write } });
  const lines = () => text.map((line) => JSON.parse(line) as LogLine);
  return {
    logger,
    text,
    /** All lines about a request, once there is one. */
    async of(requestId: string): Promise<LogLine[]> {
      for (;;) {
        const found = lines().filter((line) => line['requestId'] === requestId);
        if (found.length > 0) return found;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
  };
}

const log = memoryLogger();
const { app, store } = openTestApp({ bodyLimitBytes: 1000 }, { logger: log.logger });
const send = listenRaw(app);

/** No request of the API fails unforeseen; this route does, to see what such a failure looks like. */
app.get('/test/unforeseen', async () => {
  throw new Error('a detail that is no business of clients');
});

let key = '';
beforeAll(async () => {
  key = await createAutomation(store, 'logged');
});

let requests = 0;

/** Sends a request with an id of its own; returns the answer and what was logged about it. */
async function logged(request: InjectOptions) {
  requests += 1;
  const requestId = `request-${requests}`;
  const headers = { ...request.headers, 'x-request-id': requestId };
  const answer = await app.inject({ ...request, headers });
  return { answer, requestId, lines: await log.of(requestId) };
}

describe('a request is one line in the log,', () => {
  test('with its id, method, path, status and duration, and an accepted one with its automation and run', async () => {
    const { answer, requestId, lines } = await logged(trigger('logged', key, '{}'));
    expect(lines).toEqual([
      {
        level: 'info',
        time: expect.stringMatching(/^\d{4}-\d{2}-\d{2}T[\d:.]+Z$/),
        process: 'api',
        msg: 'request',
        requestId,
        method: 'POST',
        path: '/orc/api/automation-triggers/:slug',
        statusCode: 202,
        durationMs: expect.any(Number),
        automation: 'logged',
        runId: expectAccepted(answer),
      },
    ]);
  });

  const refusals: [number, string, () => InjectOptions][] = [
    [401, 'missing_api_key', () => trigger('logged', undefined)],
    [401, 'invalid_api_key', () => trigger('logged', mintApiKey())],
    [403, 'automation_disabled', () => trigger('logged-disabled', disabledKey)],
    [400, 'invalid_json', () => trigger('logged', key, '{')],
    [400, 'invalid_payload', () => trigger('logged', key, '[]')],
    [413, 'payload_too_large', () => trigger('logged', key, ' '.repeat(1001))],
    [415, 'unsupported_media_type', () => trigger('logged', key, '{}', { 'content-type': 'text/plain' })],
    [404, 'not_found', () => ({ url: '/nothing-here' })],
    [405, 'method_not_allowed', () => ({ method: 'PUT', url: '/orc/health' })],
  ];
  let disabledKey = '';
  beforeAll(async () => {
    disabledKey = await createAutomation(store, 'logged-disabled', { enabled: false });
  });

  test.each(refusals)('a %i with the identifier %s', async (statusCode, error, request) => {
    const { answer, lines } = await logged(request());
    expect(answer.statusCode).toBe(statusCode);
    expect(lines).toMatchObject([{ level: 'info', msg: 'request', statusCode, error }]);
    expect(lines[0]?.['durationMs']).toBeGreaterThanOrEqual(0);
  });

  test('at level debug for a poll that succeeds, so that polls do not drown the rest', async () => {
    const { lines } = await logged({ url: '/orc/health' });
    expect(lines).toMatchObject([{ level: 'debug', statusCode: 200, path: '/orc/health' }]);
    expect(lines[0]).not.toHaveProperty('error');
  });

  test('and an unforeseen failure is another one with its cause, which the client does not learn', async () => {
    const { answer, requestId, lines } = await logged({ url: '/test/unforeseen' });
    const { hint } = expectError(answer, 500, 'internal_error');
    expect(hint).toMatch(/x-request-id/);
    expect(answer.headers['x-request-id']).toBe(requestId);
    expect(answer.body).not.toContain('detail');
    expect(lines).toMatchObject([
      { level: 'error', msg: 'request failed', err: { message: 'a detail that is no business of clients' } },
      { level: 'error', msg: 'request', statusCode: 500, error: 'internal_error' },
    ]);
  });

  test('without the query, which may hold anything', async () => {
    const known = await logged({ url: '/orc/health?password=hunter2' });
    const unknown = await logged({ url: '/nothing-here?password=hunter2' });
    expect(JSON.stringify([known.lines, unknown.lines])).not.toContain('hunter2');
  });

  test('that stays short when the path is long', async () => {
    const { lines } = await logged({ url: `/${'a'.repeat(10_000)}` });
    expect(JSON.stringify(lines).length).toBeLessThan(1000);
  });
});

test('a client that goes away in the middle of its body is no failure of the service', async () => {
  const closed = new Promise((resolve) => {
    app.server.once('connection', (socket) => socket.once('close', resolve));
  });
  const head = `POST /orc/api/automation-triggers/logged HTTP/1.1\r\nhost: a\r\nx-api-key: ${key}\r\n`;
  const broken = await send(`${head}transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n`, 'zz\r\n');
  expectError(broken, 400, 'bad_request');
  await closed;
  // What the broken request led to is over when a later one that goes the same way is.
  await logged(trigger('logged', key, '{}'));
  expect(log.text.filter((line) => line.includes('"level":"error"') && line.includes('aborted'))).toEqual([]);
});

describe('the log holds no key', () => {
  const places: [string, (canary: string) => InjectOptions][] = [
    ['in x-api-key', (canary) => trigger('logged', canary, '{}')],
    ['twice in x-api-key', (canary) => trigger('logged', `${canary}, ${canary}`, '{}')],
    ['in place of the slug', (canary) => trigger(canary, canary, '{}')],
    ['in the query', (canary) => trigger(`logged?x-api-key=${canary}`, undefined, '{}')],
    ['in the path of a 404', (canary) => ({ url: `/orc/api/${canary}/x` })],
    ['at the end of what is logged of a long path', (canary) => ({ url: `/${'a'.repeat(160)}${canary}` })],
    ['at the end of what is looked at of a long path', (canary) => ({ url: `/${'a'.repeat(970)}${canary}` })],
    ['in a path that is not valid', (canary) => ({ url: `/${canary}/%zz` })],
    ['in the path of a 405', (canary) => ({ method: 'PUT', url: `/orc/api/automation-triggers/${canary}` })],
    ['in the body', (canary) => trigger('logged', key, `{"a":"${canary}"}`)],
    ['in a malformed body', (canary) => trigger('logged', key, `{"a":"${canary}`)],
    ['in the content type', (canary) => trigger('logged', key, '{}', { 'content-type': canary })],
    [
      'in Authorization',
      (canary) => trigger('logged', undefined, '{}', { authorization: `Bearer ${canary}` }),
    ],
    ['in traceparent', (canary) => trigger('logged', key, '{}', { traceparent: canary })],
  ];

  test.each(places)('that was sent %s', async (_, request) => {
    const canary = mintApiKey();
    const answer = await app.inject(request(canary));
    await logged({ url: '/orc/health' });
    expect(answer.statusCode).toBeGreaterThan(0);
    expect(log.text.filter((line) => line.includes(canary.slice(4, 20)))).toEqual([]);
    expect(log.text.length).toBeGreaterThan(0);
  });

  test('that is right', async () => {
    const { lines } = await logged(trigger('logged', key, '{"canary":"payload-canary"}'));
    expect(lines).toHaveLength(1);
    expect(log.text.join('')).not.toContain(key);
    expect(log.text.join('')).not.toContain('payload-canary');
  });

  test('that was sent as x-request-id', async () => {
    const canary = mintApiKey();
    const answer = await app.inject({ url: '/orc/health', headers: { 'x-request-id': canary } });
    expect(await log.of(String(answer.headers['x-request-id']))).toHaveLength(1);
    expect(log.text.join('')).not.toContain(canary);
  });
});

describe('x-request-id', () => {
  test.each(['ci-17', '0af7651916cd43dd', 'a', 'x'.repeat(128), '!"#$%&\'()*+,-./:;<=>?@[]^_`{|}~'])(
    'is given back when it is %s',
    async (requestId) => {
      const answer = await app.inject({ url: '/orc/health', headers: { 'x-request-id': requestId } });
      expect(answer.headers['x-request-id']).toBe(requestId);
    },
  );

  test.each([
    ['is empty', ''],
    ['has a space', 'a b'],
    ['has a character outside of ASCII', 'caf\u00e9'],
    ['has a control character', 'a\u001b[31m'],
    ['is over 128 characters long', 'x'.repeat(129)],
    ['holds an API key', mintApiKey()],
  ])('is replaced when it %s', async (_, requestId) => {
    const answer = await app.inject({ url: '/orc/health', headers: { 'x-request-id': requestId } });
    expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  });

  test('is made when there is none, another one for every request', async () => {
    const ids = [await app.inject('/orc/health'), await app.inject('/nothing-here')].map(
      ({ headers }) => headers['x-request-id'],
    );
    expect(new Set(ids).size).toBe(2);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f-]{36}$/);
  });

  test.each(['/nothing-here', '/%zz', '/test/unforeseen'])('is on errors, too: %s', async (url) => {
    const answer = await app.inject({ url, headers: { 'x-request-id': 'ci-17' } });
    expect(answer.statusCode).toBeGreaterThanOrEqual(400);
    expect(answer.headers['x-request-id']).toBe('ci-17');
  });
});
