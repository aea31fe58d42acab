import { Socket } from 'node:net';
import type { InjectOptions } from 'fastify';
import { beforeAll, describe, expect, test } from 'vitest';
import { RequestLog } from '../../src/api/request-log.ts';
import { mintApiKey } from '../../src/core/api-key.ts';
import { expectAccepted, expectError, openTestApp, trigger } from '../support/app.ts';
import { type LogLine, memoryLogger } from '../support/memory-logger.ts';
import { listenRaw, RawConnection } from '../support/raw-http.ts';
import { createAutomation } from '../support/store.ts';

const log = memoryLogger();
const { app, store } = openTestApp({ bodyLimitBytes: 1000 }, { logger: log.logger });
const send = listenRaw(app);

/** No request of the API fails unforeseen; this route does, to see what such a failure looks like. */
app.get('/test/unforeseen', async () => {
  throw new Error('a detail that is no business of clients');
});

/** Answers when a test lets it, which learns when it is asked. */
const slow = { asked: () => {}, answer: () => {}, fail: () => {} };
app.get('/test/slow', async (_request, reply) => {
  const answered = new Promise<void>((resolve, reject) => {
    slow.answer = resolve;
    slow.fail = () => reject(new Error('too late to be told'));
  });
  slow.asked();
  await answered;
  return reply.send('late');
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
        address: '127.0.0.1',
        userAgent: 'lightMyRequest',
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

  test('with the slug that a refused request meant', async () => {
    const { lines } = await logged(trigger('mistyped', key, '{}'));
    expect(lines).toMatchObject([{ statusCode: 401, path: '/orc/api/automation-triggers/mistyped' }]);
  });

  test('without the automation that a key opened until it was revoked', async () => {
    const revoked = await createAutomation(store, 'logged-revoked');
    const accepted = await logged(trigger('logged-revoked', revoked, '{}'));
    expect(accepted.lines).toMatchObject([{ statusCode: 202, automation: 'logged-revoked' }]);
    await store.automations.rotateKey('logged-revoked', 0);
    for (const when of ['first', 'second']) {
      const { lines } = await logged(trigger('logged-revoked', revoked, '{}'));
      expect([when, lines]).toMatchObject([when, [{ statusCode: 401, error: 'invalid_api_key' }]]);
      expect(lines[0]).not.toHaveProperty('automation');
    }
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

describe('the line of a client that has hung up says so,', () => {
  /** Sends GET requests right behind each other, the first one for the route that waits, and hangs up. */
  async function hangUp(...requests: string[]): Promise<void> {
    const closed = new Promise((resolve) => {
      app.server.once('connection', (socket) => socket.once('close', resolve));
    });
    const asked = new Promise<void>((resolve) => {
      slow.asked = resolve;
    });
    const connection = await RawConnection.open(app);
    connection.write(requests.join(''));
    await asked;
    // Whatever was sent behind it has its answer by then, which waits for its turn.
    await app.inject({ url: '/orc/health' });
    connection.reset();
    await closed;
  }
  const get = (path: string, requestId: string) =>
    `GET ${path} HTTP/1.1\r\nhost: a\r\nx-request-id: ${requestId}\r\n\r\n`;

  test('when the answer was not ready', async () => {
    await hangUp(get('/test/slow', 'not-ready'));
    slow.answer();
    expect(await log.of('not-ready')).toMatchObject([{ statusCode: 200, hungUp: true }]);
  });

  test('when the answer waited for the one to an earlier request', async () => {
    await hangUp(get('/test/slow', 'earlier'), get('/nothing-here', 'waits'));
    expect(await log.of('waits')).toMatchObject([{ error: 'not_found', hungUp: true }]);
    slow.answer();
    await log.of('earlier');
  });

  test('and it is no failure of the service, whatever the answer would have been', async () => {
    await hangUp(get('/test/slow', 'fails'));
    slow.fail();
    expect(await log.find(({ requestId }) => requestId === 'fails', 2)).toMatchObject([
      { level: 'error', msg: 'request failed' },
      { level: 'info', statusCode: 499, error: 'internal_error', hungUp: true },
    ]);
  });

  test('and there is no other line', async () => {
    await logged({ url: '/orc/health' });
    const all = log.text.filter((line) => /"(not-ready|waits|earlier)"/.test(line));
    expect(all).toHaveLength(3);
  });
});

test('a request that is malformed in its body has one line, which says what was answered', async () => {
  const closed = new Promise((resolve) => {
    app.server.once('connection', (socket) => socket.once('close', resolve));
  });
  const head = `POST /orc/api/automation-triggers/cut-off HTTP/1.1\r\nhost: a\r\nx-request-id: cut-off\r\nx-api-key: ${key}\r\n`;
  const broken = await send(`${head}transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n`, 'zz\r\n');
  expectError(broken, 400, 'bad_request');
  await closed;
  // What the broken request led to is over when a later one that goes the same way is.
  await logged(trigger('logged', key, '{}'));
  const lines = log.text.filter((line) => line.includes('cut-off') || line.includes('aborted'));
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    {
      msg: 'connection closed',
      method: 'POST',
      path: '/orc/api/automation-triggers/cut-off',
      statusCode: 400,
      error: 'bad_request',
      address: '127.0.0.1',
    },
  ]);
});

describe('the log holds no key', () => {
  const places: [string, (canary: string) => InjectOptions][] = [
    ['in x-api-key', (canary) => trigger('logged', canary, '{}')],
    ['twice in x-api-key', (canary) => trigger('logged', `${canary}, ${canary}`, '{}')],
    ['in place of the slug', (canary) => trigger(canary, canary, '{}')],
    ['in the query', (canary) => trigger(`logged?x-api-key=${canary}`, undefined, '{}')],
    ['in the path of a 404', (canary) => ({ url: `/orc/api/${canary}/x` })],
    ['with its underscore percent-encoded', (canary) => ({ url: `/${canary.replace('_', '%5F')}` })],
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

describe('in a flood of refusals,', () => {
  const FLOOD = 2000;
  const refusalsOf = (error: string) => (line: LogLine) => line['error'] === error;

  test('a hundred a second have lines, and the others are counted', async () => {
    const before = (await log.find(refusalsOf('missing_api_key'))).length;
    for (let sent = 0; sent < FLOOD; sent += 1) {
      await app.inject({ ...trigger('logged', undefined), remoteAddress: `192.0.2.${sent % 250}` });
    }
    const isSummary = (line: LogLine) => line['msg'] === 'requests refused without a line';
    let counted = 0;
    let lines = 0;
    // Every window of the flood ends with a line about it.
    for (let known = 1; counted + lines < FLOOD; known += 1) {
      const summaries = await log.find(isSummary, known);
      expect(summaries[0]).toMatchObject({ level: 'info', statusCode: 401, error: 'missing_api_key' });
      counted = summaries.reduce((sum, { count }) => sum + Number(count), 0);
      lines = (await log.find(refusalsOf('missing_api_key'))).length - summaries.length - before;
    }
    expect(counted + lines).toBe(FLOOD);
    expect(counted).toBeGreaterThan(0);
  });

  test('those with a key that is right have a line each', async () => {
    for (let sent = 0; sent < 150; sent += 1) {
      const { lines } = await logged(trigger('logged', key, '[]'));
      expect(lines).toMatchObject([{ error: 'invalid_payload', automation: 'logged' }]);
    }
  });

  test.each([
    ['answers that are no refusals', '/orc/health', 'debug', 'requests answered without a line'],
    ['failures', '/test/unforeseen', 'error', 'failures without a line'],
    ['answers that tell of a failure', '/test/unforeseen', 'error', 'requests refused without a line'],
  ])('%s are limited, too', async (_, url, level, summary) => {
    const isSummary = (line: LogLine) => line['msg'] === summary && line['level'] === level;
    const before = await log.find(isSummary, 0);
    const since = log.text.length;
    for (let sent = 0; sent < FLOOD; sent += 1) await app.inject({ url });
    await log.find(isSummary, before.length + 1);
    expect(log.text.length - since).toBeLessThan(FLOOD);
  });

  test('what was counted is said when the process stops', () => {
    const { logger, text } = memoryLogger();
    const requestLog = new RequestLog(logger);
    for (let sent = 0; sent < 103; sent += 1)
      requestLog.refused('bad_request', 'connection closed', new Socket());
    expect(text).toHaveLength(100);
    requestLog.close();
    expect(JSON.parse(text[100] ?? '')).toMatchObject({ statusCode: 400, error: 'bad_request', count: 3 });
    requestLog.close();
    expect(text).toHaveLength(101);
  });
});
