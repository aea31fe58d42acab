import { once } from 'node:events';
import type { Socket } from 'node:net';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { ErrorId } from '../../src/core/errors.ts';
import { expectAccepted, expectError, openTestApp, SETTINGS } from '../support/app.ts';
import { listenRaw, type RawAnswer, RawConnection } from '../support/raw-http.ts';
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
  return send(headOf(lines), body);
}

function headOf(lines: string[]): Buffer {
  return Buffer.from([...lines, '\r\n'].join('\r\n').replaceAll(KEY, key), 'latin1');
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
  connection: 'usable' | 'closed';
  /** Value of the response header `Allow`. */
  allow?: string;
  /** Interim answers before the final one. Default: none. */
  interim?: number[];
}

const HEALTH = ['GET /orc/health HTTP/1.1', 'Host: example.com'];
const TRIGGER = [
  'POST /orc/api/automation-triggers/hello HTTP/1.1',
  'Host: example.com',
  `X-Api-Key: ${KEY}`,
  'Content-Type: application/json',
];

const WITHOUT_KEY = TRIGGER.filter((line) => !/^X-Api/.test(line));
const CHUNKED = [...TRIGGER, 'Transfer-Encoding: chunked'];
const H2C = [
  'Connection: Upgrade, HTTP2-Settings',
  'Upgrade: h2c',
  'HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA',
];
const LIMIT = SETTINGS.bodyLimitBytes;

const CLIENT_HELLO = Buffer.concat([
  Buffer.from('1603010200010001fc0303', 'hex'),
  Buffer.alloc(506, Buffer.from('0a0d0a0d130113021303002b', 'hex')),
]);

const refused = { statusCode: 400, error: 'bad_request' } as const;
const malformed = { ...refused, connection: 'closed' } as const;
const ok = { statusCode: 200, connection: 'usable' } as const;
const accepted = { statusCode: 202, connection: 'usable' } as const;
const invalidKey = { statusCode: 401, error: 'invalid_api_key', connection: 'usable' } as const;

const notFound = { statusCode: 404, error: 'not_found', connection: 'usable' } as const;
const wrongMethod = { statusCode: 405, error: 'method_not_allowed' } as const;
const uriTooLong = { statusCode: 414, error: 'uri_too_long' } as const;
const unmet = { statusCode: 417, error: 'expectation_failed', connection: 'usable' } as const;
const headersTooLarge = { statusCode: 431, error: 'headers_too_large', connection: 'closed' } as const;
const unknownCoding = {
  statusCode: 501,
  error: 'unsupported_transfer_encoding',
  connection: 'usable',
} as const;

/** A trigger request to another target. */
function triggerAt(target: string): string[] {
  return [`POST ${target} HTTP/1.1`, ...TRIGGER.slice(1)];
}

function triggerOf(slug: string): string[] {
  return triggerAt(`/orc/api/automation-triggers/${slug}`);
}

/** A trigger request with a body, by its Content-Length. */
function withBody(body: string | Buffer, lines: string[] = TRIGGER) {
  return { lines: [...lines, `Content-Length: ${Buffer.byteLength(body)}`], body };
}

/** A body in the chunked transfer coding, in one chunk. */
function inOneChunk(body: string): string {
  return `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
}

const CASES: Record<string, Case[]> = {
  'the method': [
    {
      name: 'is CONNECT',
      lines: ['CONNECT example.com:443 HTTP/1.1', 'Host: example.com:443'],
      ...wrongMethod,
      connection: 'closed',
      allow: 'GET, HEAD, POST',
    },
    {
      name: 'is TRACE with the right key, which is not sent back',
      lines: ['TRACE /orc/api/automation-triggers/hello HTTP/1.1', ...TRIGGER.slice(1, 3)],
      ...wrongMethod,
      connection: 'usable',
      allow: 'POST',
    },
    {
      name: 'is wrong for a percent-encoded path',
      lines: ['DELETE /orc/%68ealth?x=%zz HTTP/1.1', 'Host: a'],
      ...wrongMethod,
      connection: 'usable',
      allow: 'GET, HEAD',
    },
  ],
  'the request line': [
    { name: 'is no HTTP', lines: ['hello there'], ...malformed },
    {
      name: 'is of RTSP',
      ...withBody('{}', [`${TRIGGER[0]?.replace('HTTP/1.1', 'RTSP/1.0')}`, ...TRIGGER.slice(1)]),
      ...malformed,
    },
    { name: 'is of RTSP after empty lines', lines: ['', '', 'OPTIONS / RTSP/1.0'], ...malformed },
    { name: 'is a whole TLS handshake', lines: [CLIENT_HELLO.toString('latin1')], ...malformed },
    {
      name: 'has an absolute target, and it is a trigger',
      lines: triggerAt('http://example.com/orc/api/automation-triggers/hello'),
      ...accepted,
    },
    {
      name: 'has the target * with a method that does not know it',
      lines: ['GET * HTTP/1.1', 'Host: a'],
      ...refused,
      connection: 'usable',
    },
    {
      name: 'has a target of 8,192 characters',
      lines: [`GET /${'a'.repeat(8191)} HTTP/1.1`, 'Host: a'],
      ...notFound,
    },
    {
      name: 'has a target of 8,193 characters',
      lines: [`GET /${'a'.repeat(8192)} HTTP/1.1`, 'Host: a'],
      ...uriTooLong,
      connection: 'usable',
    },
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
  'the slug': [{ name: 'is two encoded dots', lines: triggerOf('%2e%2E'), ...invalidKey }],
  'percent-encoding': [
    {
      name: 'without digits, with a method that no path answers',
      lines: ['DELETE /%zz HTTP/1.1', 'Host: a'],
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
      name: 'are 2,100, of which the last one counts',
      lines: [...TRIGGER.slice(0, 2), ...Array(2100).fill('a:'), `X-Api-Key: ${KEY}`, 'Content-Length: 0'],
      ...accepted,
    },
    { name: 'have a folded x-api-key', lines: [...WITHOUT_KEY, 'X-Api-Key:', ` ${KEY}`], ...malformed },
    {
      name: 'are over 16 KiB, and a body follows',
      lines: [...TRIGGER, `X-Large: ${'a'.repeat(20_000)}`, 'Content-Length: 2000000'],
      body: Buffer.alloc(2_000_000, ' '),
      ...headersTooLarge,
    },
    {
      name: 'ask for a websocket, which is ignored',
      lines: [...HEALTH, 'Connection: upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'],
      ...ok,
      connection: 'closed',
    },
    {
      name: 'ask for h2c in a trigger, which is run',
      ...withBody('{}', [...TRIGGER, ...H2C]),
      ...accepted,
      connection: 'closed',
    },
    {
      name: 'ask for the end of the connection',
      lines: [...HEALTH, 'Connection: close'],
      ...ok,
      connection: 'closed',
    },
  ],
  'the Expect header': [
    { name: 'asks for something else than 100-continue', lines: [...HEALTH, 'Expect: 200-ok'], ...unmet },
    {
      name: 'asks for something else with a body',
      ...withBody('{}', [...TRIGGER, 'Expect: miracles']),
      ...unmet,
    },
    {
      name: 'asks for 100-continue',
      ...withBody('{}', [...TRIGGER, 'Expect: 100-continue']),
      ...accepted,
      interim: [100],
    },
    {
      name: 'asks for 100-continue in capitals and by chunks',
      lines: [...CHUNKED, 'Expect: 100-Continue'],
      body: inOneChunk('{}'),
      ...accepted,
      interim: [100],
    },
  ],
  'the x-api-key header': [
    {
      name: 'is there twice, with the same right key',
      lines: [...TRIGGER, `X-Api-Key: ${KEY}`],
      ...invalidKey,
    },
    {
      name: 'comes in a trailer',
      lines: [...WITHOUT_KEY, 'Transfer-Encoding: chunked'],
      body: `2\r\n{}\r\n0\r\nX-Api-Key: ${KEY}\r\n\r\n`,
      statusCode: 401,
      error: 'missing_api_key',
      connection: 'usable',
    },
    {
      name: 'has spaces around the key, which HTTP ignores',
      lines: [...TRIGGER.slice(0, 2), `X-Api-Key:  \t ${KEY} \t `],
      ...accepted,
    },
  ],
  'the length of the body': [
    {
      name: 'is given by chunks with a trailer',
      lines: [...TRIGGER, 'Transfer-Encoding: chunked'],
      body: '2\r\n{}\r\n0\r\nX-T: 1\r\n\r\n',
      ...accepted,
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
      name: 'is given by a coding and chunks',
      lines: [...TRIGGER, 'Transfer-Encoding: gzip, chunked'],
      body: inOneChunk('{}'),
      ...unknownCoding,
    },
    {
      name: 'is given by a coding in a header of its own',
      lines: [...TRIGGER, 'Transfer-Encoding: gzip', 'Transfer-Encoding: chunked'],
      body: inOneChunk('{}'),
      ...unknownCoding,
    },
    {
      name: 'is given by chunks that are not the last coding',
      lines: [...TRIGGER, 'Transfer-Encoding: chunked, gzip'],
      body: inOneChunk('{}'),
      ...malformed,
    },
    {
      name: 'is given by a coding without a name',
      lines: [...TRIGGER, 'Transfer-Encoding:'],
      body: inOneChunk('{}'),
      ...malformed,
    },
    {
      name: 'is given by chunks with a trailer of 20 KB',
      lines: CHUNKED,
      body: `2\r\n{}\r\n0\r\nX-Large: ${'a'.repeat(20_000)}\r\n\r\n`,
      ...headersTooLarge,
    },
  ],
};

describe.each(Object.entries(CASES))('when %s', (_, cases) => {
  const titled = cases.map(
    (each) => [`${each.name}: ${each.statusCode}, connection ${each.connection}`, each] as const,
  );
  test.each(titled)('%s', async (_title, { lines, body, ...expected }) => {
    const answer = await sendLines(lines, body);
    expect(answer.headers['allow']).toBe(expected.allow);
    expect(answer.interim).toEqual(expected.interim ?? []);
    if (lines[0]?.startsWith('HEAD ')) expect(answer.body).toBe('');
    else if (expected.error) expectError(answer, expected.statusCode, expected.error);
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

/** Sends everything at once; returns the statuses of all answers until the connection is closed, and the runs made. */
function exchange(...parts: (string | Buffer)[]) {
  return exchangeAndThen(() => undefined, ...parts);
}

/** The same with a client that closes its side when it has sent everything, as `nc -N` does. */
function exchangeAndFinish(...parts: (string | Buffer)[]) {
  return exchangeAndThen((connection) => connection.finish(), ...parts);
}

async function exchangeAndThen(then: (connection: RawConnection) => void, ...parts: (string | Buffer)[]) {
  const queued = await store.runs.countQueued();
  const connection = await RawConnection.open(app);
  connection.write(Buffer.concat(parts.map((part) => Buffer.from(part))));
  then(connection);
  const statuses: number[] = [];
  for (let answer = await connection.nextAnswer(); answer; answer = await connection.nextAnswer())
    statuses.push(answer.statusCode);
  return { statuses, end: connection.end, runs: (await store.runs.countQueued()) - queued };
}

describe('what follows a request in the same packet', () => {
  const post = () => Buffer.concat([headOf([...TRIGGER, 'Content-Length: 2']), Buffer.from('{}')]);
  const rtspPost = () => Buffer.from(post().toString().replace('HTTP/1.1', 'RTSP/1.0'));
  const lastPost = () => headOf([...TRIGGER, 'Connection: close']);

  test('does not cost it its answer when it is malformed: 202, then 400, and one run', async () => {
    const answers = { statuses: [202, 400], end: 'closed', runs: 1 };
    expect(await exchange(post(), '\0garbage\r\n\r\n')).toEqual(answers);
    expect(await exchange(post(), headOf(CHUNKED), 'zz\r\n')).toEqual(answers);
    expect(await exchange(post(), `GET /orc/health HTTP/1.1\r\nX: ${'a'.repeat(20_000)}`)).toEqual({
      ...answers,
      statuses: [202, 431],
    });
  });

  test('does not cost it its answer when it is a CONNECT: 202, then 405', async () => {
    const connect = headOf(['CONNECT a:80 HTTP/1.1', 'Host: a:80']);
    expect(await exchange(post(), connect)).toEqual({ statuses: [202, 405], end: 'closed', runs: 1 });
  });

  test('is answered once when it is refused before its body turns out to be malformed', async () => {
    const withoutKey = headOf([...WITHOUT_KEY, 'Transfer-Encoding: chunked']);
    expect(await exchange(post(), withoutKey, 'zz\r\n')).toEqual({
      statuses: [202, 401],
      end: 'closed',
      runs: 1,
    });
  });

  test('is ignored after the last request of a connection', async () => {
    const answers = { statuses: [202], end: 'closed', runs: 1 };
    expect(await exchange(lastPost(), post())).toEqual(answers);
    expect(await exchange(lastPost(), 'garbage')).toEqual(answers);
  });

  test.each([
    [413, () => [headOf([...TRIGGER, `Content-Length: ${LIMIT + 1}`]), ' '.repeat(LIMIT + 1)]],
    [417, () => [headOf([...TRIGGER, 'Expect: miracles'])]],
    [501, () => [headOf([...TRIGGER, 'Transfer-Encoding: gzip, chunked']), '0\r\n\r\n']],
  ])('is run and answered after a %i', async (statusCode, refusedRequest) => {
    const statuses = [statusCode, 202];
    expect(await exchange(...refusedRequest(), lastPost())).toEqual({ statuses, end: 'closed', runs: 1 });
  });

  test.each([
    ['is accepted', TRIGGER, 202, 1],
    ['has a target that cannot be decoded', triggerOf('%ff'), 400, 0],
    ['expects something else', [...TRIGGER, 'Expect: miracles'], 417, 0],
  ])(
    'is neither run nor answered after one that asks for another protocol and %s',
    async (_, lines, statusCode, runs) => {
      const upgrade = headOf([...lines, ...H2C]);
      expect(await exchange(upgrade, post())).toEqual({ statuses: [statusCode], end: 'closed', runs });
    },
  );

  test('is not run when it is of RTSP, however it is cut into packets', async () => {
    const request = rtspPost().toString();
    const before = await store.runs.countQueued();
    for (let at = request.indexOf(' RTSP') - 3; at < request.indexOf('\r') + 3; at += 1) {
      const accepted = once(app.server, 'connection');
      const connection = await RawConnection.open(app);
      const [socket] = (await accepted) as [Socket];
      connection.write(request.slice(0, at));
      await expect.poll(() => socket.bytesRead, { interval: 1 }).toBe(at);
      connection.write(request.slice(at));
      expect(await connection.nextAnswer()).toMatchObject({ statusCode: 400 });
      connection.destroy();
    }
    expect(await store.runs.countQueued()).toBe(before);
  });

  test('is run when it only tells of RTSP', async () => {
    const body = '{"line": "GET / RTSP/1.0"}';
    const { lines } = withBody(body, [
      ...TRIGGER,
      'User-Agent: RTSP/1.0',
      'X: POST / RTSP/1.0',
      'Connection: close',
    ]);
    expect(await exchange(post(), headOf(lines), body)).toMatchObject({ statuses: [202, 202], runs: 2 });
  });

  test('is not run after a request whose end is uncertain', async () => {
    const unframed = headOf([...TRIGGER, 'Transfer-Encoding:']);
    expect(await exchange(unframed, post(), post())).toEqual({ statuses: [400], end: 'closed', runs: 0 });
  });
});

describe('what is accepted is answered', () => {
  const post = (...lines: string[]) =>
    Buffer.concat([headOf([...TRIGGER, ...lines, 'Content-Length: 2']), Buffer.from('{}')]);
  const get = (path = '/orc/health', ...lines: string[]) =>
    headOf([`GET ${path} HTTP/1.1`, 'Host: a', ...lines]);
  const EXPECT = 'Expect: 100-continue';
  const last = () => post('Connection: close');

  test('when requests that ask for 100-continue come in one packet', async () => {
    const requests = [post(EXPECT), post(EXPECT), get('/', EXPECT), post(), post(EXPECT), last()];
    const answers = { statuses: [202, 202, 200, 202, 202, 202], end: 'closed', runs: 5 };
    expect(await exchange(...requests)).toEqual(answers);
  });

  test('when no HTTP follows a request that asks for 100-continue behind another one', async () => {
    const answers = { statuses: [202, 202, 400], end: 'closed', runs: 2 };
    expect(await exchange(post(), post(EXPECT), '\0garbage\r\n\r\n')).toEqual(answers);
  });

  test('when a client closes its side behind a request', async () => {
    expect(await exchangeAndFinish(post())).toEqual({ statuses: [202], end: 'closed', runs: 1 });
  });

  test('when a client closes its side behind several requests', async () => {
    const answers = { statuses: [202, 200, 202], end: 'closed', runs: 2 };
    expect(await exchangeAndFinish(post(), get(), post(EXPECT))).toEqual(answers);
  });

  test('when a client closes its side behind its last request', async () => {
    expect(await exchangeAndFinish(last())).toEqual({ statuses: [202], end: 'closed', runs: 1 });
  });

  test('and a client that closes its side in the middle of a request gets a 400, and no run', async () => {
    const answers = { statuses: [400], end: 'closed', runs: 0 };
    expect(await exchangeAndFinish(post().subarray(0, 30))).toEqual(answers);
    expect(await exchangeAndFinish(post().subarray(0, -1))).toEqual(answers);
    expect(await exchangeAndFinish(headOf(CHUNKED), '2\r\n{}\r\n')).toEqual(answers);
  });

  test('and a connection is closed when a client closes its side without a request', async () => {
    expect(await exchangeAndFinish()).toEqual({ statuses: [], end: 'closed', runs: 0 });
  });

  test('and a connection is closed when a client closes its side long after its request', async () => {
    const connection = await RawConnection.open(app);
    connection.write(post());
    expect(await connection.nextAnswer()).toMatchObject({ statusCode: 202 });
    connection.finish();
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('closed');
  });

  test.each([
    ['ask for 100-continue', () => get('/orc/health', EXPECT)],
    ['are refused', () => get('/nothing-here')],
  ])('and many requests that %s on one connection are no reason for Node to warn', async (_, request) => {
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => void warnings.push(message);
    process.on('warning', onWarning);
    onTestFinished(() => void process.off('warning', onWarning));
    const { statuses, runs } = await exchange(...Array.from({ length: 100 }, request), last());
    expect([statuses.length, runs]).toEqual([101, 1]);
    // Node warns a moment later.
    await new Promise(setImmediate);
    expect(warnings).toEqual([]);
  });
});

describe('a client that sends everything before it reads', () => {
  // More than the buffers of both sides hold, and more than is read of a body over the limit before it is refused.
  const MUCH = Buffer.alloc(24 * 1024 * 1024, 'x');
  const length = `Content-Length: ${MUCH.length}`;

  test.each([
    ['in a body over the limit', () => headOf([...TRIGGER, length]), 413],
    ['in the last body, over the limit', () => headOf([...TRIGGER, length, 'Connection: close']), 413],
    ['in a body without a key', () => headOf([...WITHOUT_KEY, length]), 401],
    ['in the last body, without a key', () => headOf([...WITHOUT_KEY, length, 'Connection: close']), 401],
    ['in a body that nobody asked for', () => headOf(['PUT /orc/health HTTP/1.0', length]), 405],
    ['after no HTTP', () => 'hello\r\n', 400],
    ['to a tunnel', () => headOf(['CONNECT a:80 HTTP/1.1', 'Host: a:80']), 405],
  ])('%s gets its answer, and no reset', async (_, request, statusCode) => {
    const connection = await RawConnection.open(app);
    await connection.writeUnread(request(), MUCH);
    expect(await connection.nextAnswer()).toMatchObject({ statusCode });
    connection.finish();
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('closed');
  });

  test('gets its answer when Node had stopped to read a body that nobody asked for', async () => {
    const connection = await RawConnection.open(app);
    const unread = Buffer.concat([
      headOf([...WITHOUT_KEY, 'Transfer-Encoding: chunked']),
      Buffer.from('f000\r\n'),
    ]);
    await connection.writeUnread(Buffer.concat([headOf(TRIGGER), unread, MUCH]));
    expect(await connection.nextAnswer()).toMatchObject({ statusCode: 202 });
    expect(await connection.nextAnswer()).toMatchObject({ statusCode: 401 });
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('closed');
  });
});

test.each([
  ['a target', ['GET /', 'a'.repeat(9000), 'a'.repeat(9000)]],
  ['a header', ['GET /orc/health HTTP/1.1\r\nX: ', 'a'.repeat(9000), 'a'.repeat(9000)]],
])('%s over 16 KiB is refused before it ends: 431, connection closed', async (_, parts) => {
  const answer = await send(...parts);
  expectError(answer, 431, 'headers_too_large');
  expect(answer.connection).toBe('closed');
});

test.each([
  ['', ''],
  [', right behind another request', `${TRIGGER.join('\r\n')}\r\nContent-Length: 2\r\n\r\n{}`],
])(
  'a client that waits for the 100%s gets it before it sends its body, and then the 202',
  async (_, before) => {
    const connection = await RawConnection.open(app);
    connection.write(
      before.replace(KEY, key),
      headOf([...TRIGGER, 'Expect: 100-continue', 'Content-Length: 2']),
    );
    if (before) expect(await connection.nextAnswer()).toMatchObject({ statusCode: 202, interim: [] });
    await connection.received('HTTP/1.1 100 Continue\r\n\r\n');
    connection.write('{}');
    expect(await connection.nextAnswer()).toMatchObject({ statusCode: 202, interim: [100] });
    connection.destroy();
  },
);

describe('a client that stalls', () => {
  const { app: hasty, store: hastyStore } = openTestApp();
  // Node looks for clients whose time is over once a second, so that this is how long each of these tests takes.
  Object.assign(hasty.server, { headersTimeout: 100, requestTimeout: 200 });
  const sendHastily = listenRaw(hasty);
  const timedOut = { statusCode: 408, connection: 'closed' };

  test.each([
    ['in its request line', 'GET /orc/he'],
    ['in its headers', 'GET /orc/health HTTP/1.1\r\nHost: a\r\nX-'],
  ])('%s is answered 408 and closed', async (_, bytes) => {
    const answer = await sendHastily(bytes);
    expectError(answer, 408, 'request_timeout');
    expect(answer).toMatchObject(timedOut);
  });

  test.each([
    ['by its length', 'Content-Length: 3', '{}'],
    ['by its chunks', 'Transfer-Encoding: chunked', '2\r\n{}\r\n'],
    // Node's parser does not say that the body of such a request is malformed.
    [
      'malformed behind an Upgrade',
      [...H2C, 'Transfer-Encoding: chunked'].join('\r\n'),
      '-2\r\n{}\r\n0\r\n\r\n',
    ],
  ])('in its body, %s, is answered 408 and closed, and nothing is run', async (_, length, body) => {
    const slug = `stalled-${length.length}`;
    const apiKey = await createAutomation(hastyStore, slug);
    const lines = [...triggerOf(slug), length, '', body].join('\r\n').replace(KEY, apiKey);
    const answer = await sendHastily(lines);
    expectError(answer, 408, 'request_timeout');
    expect(answer).toMatchObject(timedOut);
    expect(await hastyStore.runs.countQueued()).toBe(0);
  });

  test('in a body that was refused before is closed without a second answer', async () => {
    const connection = await RawConnection.open(hasty);
    connection.write([...WITHOUT_KEY, 'Content-Length: 2', '\r\n'].join('\r\n'));
    expect(await connection.nextAnswer()).toMatchObject({ statusCode: 401 });
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('closed');
  });
});

test('HEAD of a path that does not exist has the headers of the error and no body', async () => {
  const answer = await send('HEAD /nothing-here HTTP/1.1\r\nHost: a\r\n\r\n');
  expect(answer).toMatchObject({ statusCode: 404, body: '', connection: 'usable' });
  expect(answer.headers['content-type']).toMatch(/^application\/json/);
});
