import { beforeAll, describe, expect, test } from 'vitest';
import type { ErrorId } from '../../src/core/errors.ts';
import { expectAccepted, expectError, openTestApp, SETTINGS } from '../support/app.ts';
import { listenRaw, type RawAnswer } from '../support/raw-http.ts';
import { createAutomation } from '../support/store.ts';

const { app, store } = openTestApp();
const send = listenRaw(app);

/** What stands for the key of the automation `hello` in the cases. */
const KEY = '{key}';
let key = '';
beforeAll(async () => {
  key = await createAutomation(store, 'hello');
});

async function sendLines(lines: string[], body: string | Buffer = ''): Promise<RawAnswer> {
  const head = [...lines, '\r\n'].join('\r\n').replaceAll(KEY, key);
  return send(Buffer.from(head, 'latin1'), body);
}

interface Case {
  name: string;
  /** Request line and headers. */
  lines: string[];
  body?: string | Buffer;
  /** The error it is answered with; without one, health's 200 or the trigger's 202. */
  error?: ErrorId;
  statusCode: number;
  /** What becomes of the connection. Anything after a request that HTTP cannot delimit is not to be trusted. */
  connection: RawAnswer['connection'];
}

const HEALTH = ['GET /orc/health HTTP/1.1', 'Host: example.com'];
const TRIGGER = [
  'POST /orc/api/automation-triggers/hello HTTP/1.1',
  'Host: example.com',
  `X-Api-Key: ${KEY}`,
  'Content-Type: application/json',
];

const refused = { statusCode: 400, error: 'bad_request' } as const;
const malformed = { ...refused, connection: 'closed' } as const;
const ok = { statusCode: 200, connection: 'usable' } as const;
const accepted = { statusCode: 202, connection: 'usable' } as const;
const invalidKey = { statusCode: 401, error: 'invalid_api_key', connection: 'usable' } as const;

const CASES: Record<string, Case[]> = {
  'the request line': [
    { name: 'is no HTTP', lines: ['hello there'], ...malformed },
    { name: 'has an unknown method', lines: ['BREW /orc/health HTTP/1.1', 'Host: a'], ...malformed },
    { name: 'has a method in lower case', lines: ['get /orc/health HTTP/1.1', 'Host: a'], ...malformed },
    { name: 'has an unknown version', lines: ['GET /orc/health HTTP/1.2', 'Host: a'], ...malformed },
    { name: 'is the preface of HTTP/2', lines: ['PRI * HTTP/2.0', '', 'SM'], ...malformed },
    { name: 'has a space in its target', lines: ['GET /orc/he alth HTTP/1.1', 'Host: a'], ...malformed },
    {
      name: 'has a byte outside of ASCII',
      lines: ['GET /orc/h\u00e9alth HTTP/1.1', 'Host: a'],
      ...malformed,
    },
    { name: 'is a TLS handshake', lines: ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'], ...malformed },
    { name: 'follows empty lines', lines: ['', '', ...HEALTH], ...ok },
    { name: 'has an absolute target', lines: ['GET http://a/orc/health HTTP/1.1', 'Host: a'], ...ok },
    {
      name: 'has the target *',
      lines: ['OPTIONS * HTTP/1.1', 'Host: a'],
      statusCode: 404,
      error: 'not_found',
      connection: 'usable',
    },
    { name: 'is of HTTP/1.0', lines: ['GET /orc/health HTTP/1.0'], ...ok, connection: 'closed' },
    {
      name: 'is of HTTP/1.0 and keeps the connection',
      lines: ['GET /orc/health HTTP/1.0', 'Connection: keep-alive'],
      ...ok,
    },
  ],
  'percent-encoding': [
    { name: 'without digits', lines: ['GET /%zz HTTP/1.1', 'Host: a'], ...refused, connection: 'usable' },
    {
      name: 'that is cut off',
      lines: ['GET /orc/health% HTTP/1.1', 'Host: a'],
      ...refused,
      connection: 'usable',
    },
    {
      name: 'without digits in the slug',
      lines: ['POST /orc/api/automation-triggers/%zz HTTP/1.1', ...TRIGGER.slice(1)],
      ...refused,
      connection: 'usable',
    },
    {
      name: 'of invalid UTF-8 in the slug',
      lines: ['POST /orc/api/automation-triggers/%ff HTTP/1.1', ...TRIGGER.slice(1)],
      ...refused,
      connection: 'usable',
    },
  ],
  'the Host header': [
    { name: 'is missing', lines: ['GET /orc/health HTTP/1.1'], ...refused, connection: 'usable' },
    {
      name: 'is missing from a trigger',
      lines: TRIGGER.filter((line) => !/^Host/.test(line)),
      ...refused,
      connection: 'usable',
    },
    { name: 'is there twice', lines: [...HEALTH, 'Host: example.com'], ...refused, connection: 'usable' },
    { name: 'is empty', lines: ['GET /orc/health HTTP/1.1', 'Host:'], ...ok },
  ],
  'the headers': [
    {
      name: 'are over 16 KiB by one of them',
      lines: [...HEALTH, `X-Large: ${'a'.repeat(20_000)}`],
      statusCode: 431,
      error: 'headers_too_large',
      connection: 'closed',
    },
    {
      name: 'are over 16 KiB together',
      lines: [...HEALTH, ...Array.from({ length: 300 }, (_, index) => `X-${index}: ${'a'.repeat(100)}`)],
      statusCode: 431,
      error: 'headers_too_large',
      connection: 'closed',
    },
    {
      name: 'are 2,100, of which the last one counts',
      lines: [...TRIGGER.slice(0, 2), ...Array(2100).fill('a:'), `X-Api-Key: ${KEY}`, 'Content-Length: 0'],
      ...accepted,
    },
    { name: 'have a folded line', lines: [...HEALTH, 'X-Folded: a', ' b'], ...malformed },
    { name: 'have a space before a colon', lines: [...HEALTH, 'X-Space : a'], ...malformed },
    { name: 'have a line without a colon', lines: [...HEALTH, 'nonsense'], ...malformed },
    { name: 'have a NUL', lines: [...HEALTH, 'X-Nul: a\0b'], ...malformed },
    { name: 'end in bare line feeds', lines: ['GET /orc/health HTTP/1.1\nHost: a\n'], ...malformed },
    {
      name: 'ask for an upgrade, which is ignored',
      lines: [...HEALTH, 'Connection: upgrade', 'Upgrade: websocket'],
      ...ok,
    },
    {
      name: 'ask for the end of the connection',
      lines: [...HEALTH, 'Connection: close'],
      ...ok,
      connection: 'closed',
    },
  ],
  'the Expect header': [
    {
      name: 'asks for something else than 100-continue',
      lines: [...HEALTH, 'Expect: 200-ok'],
      statusCode: 417,
      error: 'expectation_failed',
      connection: 'closed',
    },
    {
      name: 'asks for something else with a body',
      lines: [...TRIGGER, 'Expect: miracles', 'Content-Length: 2'],
      body: '{}',
      statusCode: 417,
      error: 'expectation_failed',
      connection: 'closed',
    },
    {
      name: 'asks for 100-continue',
      lines: [...TRIGGER, 'Expect: 100-continue', 'Content-Length: 2'],
      body: '{}',
      ...accepted,
    },
  ],
  'the x-api-key header': [
    {
      name: 'is there twice, with the same right key',
      lines: [...TRIGGER, `X-Api-Key: ${KEY}`],
      ...invalidKey,
    },
    { name: 'is there twice, once empty', lines: [...TRIGGER, 'X-Api-Key:'], ...invalidKey },
    {
      name: 'is empty',
      lines: [...TRIGGER.filter((line) => !/^X-Api/.test(line)), 'X-Api-Key:'],
      ...invalidKey,
    },
    {
      name: 'is missing',
      lines: TRIGGER.filter((line) => !/^X-Api/.test(line)),
      statusCode: 401,
      error: 'missing_api_key',
      connection: 'usable',
    },
    {
      name: 'has spaces around the key, which HTTP ignores',
      lines: [...TRIGGER.slice(0, 2), `X-Api-Key:  \t ${KEY} \t `],
      ...accepted,
    },
    {
      name: 'is missing, and a large body is not taken for a request',
      lines: ['POST /orc/api/automation-triggers/hello HTTP/1.1', 'Host: a', 'Content-Length: 2000000'],
      body: Buffer.alloc(2_000_000, 'GET / HTTP/1.1\r\n\r\n'),
      statusCode: 401,
      error: 'missing_api_key',
      connection: 'usable',
    },
  ],
  'the length of the body': [
    { name: 'is not given, so that there is none', lines: TRIGGER, ...accepted },
    {
      name: 'is given by chunks',
      lines: [...TRIGGER, 'Transfer-Encoding: chunked'],
      body: '2\r\n{}\r\n0\r\n\r\n',
      ...accepted,
    },
    {
      name: 'is given by chunks with a trailer',
      lines: [...TRIGGER, 'Transfer-Encoding: chunked'],
      body: '2\r\n{}\r\n0\r\nX-T: 1\r\n\r\n',
      ...accepted,
    },
    {
      name: 'is given twice',
      lines: [...TRIGGER, 'Content-Length: 2', 'Content-Length: 2'],
      body: '{}',
      ...malformed,
    },
    {
      name: 'is given twice and differs',
      lines: [...TRIGGER, 'Content-Length: 2', 'Content-Length: 3'],
      body: '{}',
      ...malformed,
    },
    {
      name: 'is given by both',
      lines: [...TRIGGER, 'Content-Length: 2', 'Transfer-Encoding: chunked'],
      body: '2\r\n{}\r\n0\r\n\r\n',
      ...malformed,
    },
    { name: 'is negative', lines: [...TRIGGER, 'Content-Length: -2'], body: '{}', ...malformed },
    { name: 'is no number', lines: [...TRIGGER, 'Content-Length: two'], body: '{}', ...malformed },
    {
      name: 'is given by an unknown coding',
      lines: [...TRIGGER, 'Transfer-Encoding: gzip'],
      body: '{}',
      ...malformed,
    },
    {
      name: 'is wrong in the first chunk',
      lines: [...TRIGGER, 'Transfer-Encoding: chunked'],
      body: 'zz\r\n{}\r\n0\r\n\r\n',
      ...malformed,
    },
    {
      name: 'is wrong in a later chunk',
      lines: [...TRIGGER, 'Transfer-Encoding: chunked'],
      body: '2\r\n{}\r\nzz\r\n',
      ...malformed,
    },
    {
      name: 'belongs to a GET, whose body is passed over',
      lines: [...HEALTH, 'Content-Length: 2'],
      body: '{}',
      ...ok,
    },
    {
      name: 'belongs to a path that does not exist',
      lines: ['POST /nothing-here HTTP/1.1', 'Host: a', 'Content-Length: 2'],
      body: '{}',
      statusCode: 404,
      error: 'not_found',
      connection: 'usable',
    },
    {
      name: 'is one over the limit',
      lines: [...TRIGGER, `Content-Length: ${SETTINGS.bodyLimitBytes + 1}`],
      body: Buffer.alloc(SETTINGS.bodyLimitBytes + 1, ' '),
      statusCode: 413,
      error: 'payload_too_large',
      connection: 'closed',
    },
  ],
};

describe.each(Object.entries(CASES))('when %s', (_, cases) => {
  const titled = cases.map(
    (each) => [`${each.name}: ${each.statusCode}, connection ${each.connection}`, each] as const,
  );
  test.each(titled)('%s', async (_title, { lines, body, ...expected }) => {
    const answer = await sendLines(lines, body);
    if (expected.error) expectError(answer, expected.statusCode, expected.error);
    else if (expected.statusCode === 202) expectAccepted(answer);
    expect(answer).toMatchObject({ statusCode: expected.statusCode, connection: expected.connection });
  });
});

test('a refused request never starts a run, and an accepted one starts one', async () => {
  const before = await store.runs.countQueued();
  for (const each of Object.values(CASES).flat()) await sendLines(each.lines, each.body);
  const acceptedCases = Object.values(CASES)
    .flat()
    .filter(({ statusCode }) => statusCode === 202);
  expect(await store.runs.countQueued()).toBe(before + acceptedCases.length);
});

test('two requests in one packet are answered in their order', async () => {
  const health = [...HEALTH, '\r\n'].join('\r\n');
  // What sends them fails when the answer to the first one is not followed by a 200.
  expect(await send(health.replace('/orc/health', '/nothing-here').concat(health))).toMatchObject({
    statusCode: 404,
  });
});

test('HEAD of a path that does not exist has the headers of the error and no body', async () => {
  const answer = await send('HEAD /nothing-here HTTP/1.1\r\nHost: a\r\n\r\n');
  expect(answer).toMatchObject({ statusCode: 404, body: '', connection: 'usable' });
  expect(answer.headers['content-type']).toMatch(/^application\/json/);
});
