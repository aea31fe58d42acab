import { once } from 'node:events';
import { METHODS } from 'node:http';
import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
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

/** Every path that exists, with the value of `Allow`. */
const PATHS: [path: string, allow: string][] = [
  ['/', 'GET, HEAD'],
  ['/llms.txt', 'GET, HEAD'],
  ['/openapi.json', 'GET, HEAD'],
  ['/orc/health', 'GET, HEAD'],
  ['/orc/api/automation-triggers/hello', 'POST'],
];

const refused = { statusCode: 400, error: 'bad_request' } as const;
const malformed = { ...refused, connection: 'closed' } as const;
const ok = { statusCode: 200, connection: 'usable' } as const;
const accepted = { statusCode: 202, connection: 'usable' } as const;
const invalidKey = { statusCode: 401, error: 'invalid_api_key', connection: 'usable' } as const;

const notFound = { statusCode: 404, error: 'not_found', connection: 'usable' } as const;
const wrongMethod = { statusCode: 405, error: 'method_not_allowed' } as const;
const tooLarge = { statusCode: 413, error: 'payload_too_large', connection: 'usable' } as const;
const uriTooLong = { statusCode: 414, error: 'uri_too_long' } as const;
const wrongType = { statusCode: 415, error: 'unsupported_media_type', connection: 'usable' } as const;
const unmet = { statusCode: 417, error: 'expectation_failed', connection: 'usable' } as const;
const headersTooLarge = { statusCode: 431, error: 'headers_too_large', connection: 'closed' } as const;
const unknownCoding = {
  statusCode: 501,
  error: 'unsupported_transfer_encoding',
  connection: 'usable',
} as const;

const invalidJson = { statusCode: 400, error: 'invalid_json', connection: 'usable' } as const;
const invalidPayload = { statusCode: 400, error: 'invalid_payload', connection: 'usable' } as const;

/** A trigger request to another target. */
function triggerAt(target: string): string[] {
  return [`POST ${target} HTTP/1.1`, ...TRIGGER.slice(1)];
}

function triggerOf(slug: string): string[] {
  return triggerAt(`/orc/api/automation-triggers/${slug}`);
}

function withKey(value: string): string[] {
  return [...WITHOUT_KEY, `X-Api-Key: ${value}`];
}

/** A trigger request with a body, by its Content-Length. */
function withBody(body: string | Buffer, lines: string[] = TRIGGER) {
  return { lines: [...lines, `Content-Length: ${Buffer.byteLength(body)}`], body };
}

function withType(...types: string[]) {
  const lines = TRIGGER.filter((line) => !/^Content-Type/.test(line));
  return withBody('{}', [...lines, ...types.map((type) => `Content-Type: ${type}`)]);
}

/** A body in the chunked transfer coding, in one chunk. */
function inOneChunk(body: string): string {
  return `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
}

const methodCases = PATHS.flatMap(([path, allow]) =>
  METHODS.filter((method) => method !== 'CONNECT' && !allow.split(', ').includes(method)).map((method) => ({
    name: `is ${method} ${path}`,
    lines: [`${method} ${path} HTTP/1.1`, 'Host: a'],
    ...wrongMethod,
    connection: 'usable' as const,
    allow,
  })),
);

const headCases = PATHS.filter(([, allow]) => allow.includes('HEAD')).map(([path]) => ({
  name: `is HEAD ${path}`,
  lines: [`HEAD ${path} HTTP/1.1`, 'Host: a'],
  ...ok,
}));

const CASES: Record<string, Case[]> = {
  'the method': [
    ...methodCases,
    ...headCases,
    {
      name: 'is CONNECT',
      lines: ['CONNECT example.com:443 HTTP/1.1', 'Host: example.com:443'],
      ...wrongMethod,
      connection: 'closed',
      allow: 'GET, HEAD, POST',
    },
    {
      name: 'is CONNECT, and bytes for the tunnel follow',
      lines: ['CONNECT example.com:443 HTTP/1.1', 'Host: example.com:443'],
      body: Buffer.alloc(2_000_000, CLIENT_HELLO),
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
      name: 'is wrong and has a body over the limit',
      ...withBody(' '.repeat(LIMIT + 1), ['PUT /orc/health HTTP/1.1', 'Host: a']),
      ...wrongMethod,
      connection: 'usable',
      allow: 'GET, HEAD',
    },
    {
      name: 'is wrong for an absolute target',
      lines: ['DELETE http://example.com/orc/health HTTP/1.1', 'Host: a'],
      ...wrongMethod,
      connection: 'usable',
      allow: 'GET, HEAD',
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
    { name: 'has an unknown method', lines: ['BREW /orc/health HTTP/1.1', 'Host: a'], ...malformed },
    { name: 'has a method in lower case', lines: ['get /orc/health HTTP/1.1', 'Host: a'], ...malformed },
    { name: 'has an unknown version', lines: ['GET /orc/health HTTP/1.2', 'Host: a'], ...malformed },
    { name: 'is the preface of HTTP/2', lines: ['PRI * HTTP/2.0', '', 'SM'], ...malformed },
    { name: 'has the method of that preface', lines: ['PRI /orc/health', 'Host: a'], ...malformed },
    { name: 'has a space in its target', lines: ['GET /orc/he alth HTTP/1.1', 'Host: a'], ...malformed },
    {
      name: 'has a byte outside of ASCII',
      lines: ['GET /orc/h\u00e9alth HTTP/1.1', 'Host: a'],
      ...malformed,
    },
    {
      name: 'is of RTSP',
      ...withBody('{}', [`${TRIGGER[0]?.replace('HTTP/1.1', 'RTSP/1.0')}`, ...TRIGGER.slice(1)]),
      ...malformed,
    },
    {
      name: 'is of RTSP in the version of HTTP',
      ...withBody('{}', [`${TRIGGER[0]?.replace('HTTP', 'RTSP')}`, ...TRIGGER.slice(1)]),
      ...malformed,
    },
    { name: 'is of RTSP for a page', lines: ['GET / RTSP/1.0', 'CSeq: 1'], ...malformed },
    { name: 'is of RTSP after empty lines', lines: ['', '', 'OPTIONS / RTSP/1.0'], ...malformed },
    { name: 'is of ICE', lines: ['GET /orc/health ICE/1.0', 'Host: a'], ...malformed },
    { name: 'is a TLS handshake', lines: ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'], ...malformed },
    { name: 'is a whole TLS handshake', lines: [CLIENT_HELLO.toString('latin1')], ...malformed },
    {
      name: 'is no HTTP, and much more follows',
      lines: ['hello'],
      body: Buffer.alloc(5_000_000),
      ...malformed,
    },
    { name: 'has no version, as in HTTP/0.9', lines: ['GET /orc/health'], ...malformed },
    { name: 'has the version 0.9', lines: ['GET /orc/health HTTP/0.9'], ...malformed },
    {
      name: 'has the version 2.0',
      ...withBody('{}', [`${triggerOf('hello')[0]?.replace('1.1', '2.0')}`, ...TRIGGER.slice(1)]),
      ...malformed,
    },
    {
      name: 'has an absolute target, and it is a trigger',
      lines: triggerAt('http://example.com/orc/api/automation-triggers/hello'),
      ...accepted,
    },
    { name: 'has an absolute target without a path', lines: ['GET http://a HTTP/1.1', 'Host: a'], ...ok },
    {
      name: 'has an absolute target of FTP',
      lines: ['GET ftp://a/orc/health HTTP/1.1', 'Host: a'],
      ...notFound,
    },
    { name: 'has only an authority', lines: ['GET a:80 HTTP/1.1', 'Host: a'], ...malformed },
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
    {
      name: 'has a target of 15,000 characters',
      lines: triggerOf(`hello?${'a'.repeat(15_000)}`),
      ...uriTooLong,
      connection: 'usable',
    },
    {
      name: 'has a target over 16 KiB',
      lines: triggerOf('a'.repeat(20_000)),
      ...uriTooLong,
      connection: 'closed',
    },
    {
      name: 'has a target of 100 KB',
      lines: [`GET /orc/health?${'a'.repeat(100_000)} HTTP/1.1`, 'Host: a'],
      ...uriTooLong,
      connection: 'closed',
    },
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
  'the path': [
    { name: 'has a dot segment', lines: ['GET /orc/./health HTTP/1.1', 'Host: a'], ...notFound },
    { name: 'has a double dot segment', lines: ['GET /orc/../orc/health HTTP/1.1', 'Host: a'], ...notFound },
    { name: 'has a dot segment before the slug', lines: triggerOf('./hello'), ...notFound },
    {
      name: 'leads to the slug over a detour',
      lines: triggerOf('../automation-triggers/hello'),
      ...notFound,
    },
    { name: 'has a dot segment after the slug', lines: triggerOf('hello/..'), ...notFound },
    { name: 'begins with two slashes', lines: ['GET //orc/health HTTP/1.1', 'Host: a'], ...notFound },
  ],
  'the slug': [
    { name: 'has a %2F', lines: triggerOf('hello%2Fhello'), ...invalidKey },
    { name: 'has a %00', lines: triggerOf('hello%00'), ...invalidKey },
    { name: 'has a %0D%0A', lines: triggerOf('hello%0D%0Aset'), ...invalidKey },
    { name: 'has a semicolon', lines: triggerOf('hello;x=1'), ...invalidKey },
    { name: 'has encoded characters outside of ASCII', lines: triggerOf('caf%C3%A9'), ...invalidKey },
    { name: 'has characters outside of ASCII', lines: triggerOf('caf\u00c3\u00a9'), ...malformed },
    { name: 'is two dots', lines: triggerOf('..'), ...invalidKey },
    { name: 'is two encoded dots', lines: triggerOf('%2e%2E'), ...invalidKey },
    { name: 'is empty', lines: triggerOf(''), ...invalidKey },
    { name: 'is as long as a target may be', lines: triggerOf('a'.repeat(8000)), ...invalidKey },
    { name: 'is the right one, encoded', lines: triggerOf('%68ello'), ...accepted },
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
      name: 'without digits, with a method that no path answers',
      lines: ['DELETE /%zz HTTP/1.1', 'Host: a'],
      ...refused,
      connection: 'usable',
    },
    {
      name: 'without digits, with OPTIONS on an existing path',
      lines: ['OPTIONS /orc/health%f HTTP/1.1', 'Host: a'],
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
    { name: 'begin with a folded line', lines: [HEALTH[0] ?? '', ' Host: a'], ...malformed },
    { name: 'have a folded x-api-key', lines: [...WITHOUT_KEY, 'X-Api-Key:', ` ${KEY}`], ...malformed },
    { name: 'have a name that is empty', lines: [...HEALTH, ': a'], ...malformed },
    { name: 'have a lone carriage return', lines: [...HEALTH, 'X-Cr: a\rX-B: b'], ...malformed },
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
    },
    { name: 'ask for h2c, which is ignored', lines: [...HEALTH, ...H2C], ...ok },
    { name: 'ask for h2c in a trigger, which is run', ...withBody('{}', [...TRIGGER, ...H2C]), ...accepted },
    {
      name: 'ask for an upgrade at a path that does not exist',
      lines: ['GET /ws HTTP/1.1', 'Host: a', 'Connection: upgrade', 'Upgrade: websocket'],
      ...notFound,
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
      name: 'asks for something else with a large body',
      ...withBody(' '.repeat(2_000_000), [...TRIGGER, 'Expect: miracles']),
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
    {
      name: 'asks for 100-continue without a body',
      lines: [...HEALTH, 'Expect: 100-continue'],
      ...ok,
      interim: [100],
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
      name: 'is there twice, with the right key second',
      lines: [...withKey('a'), `X-Api-Key: ${KEY}`],
      ...invalidKey,
    },
    { name: 'has a space within the key', lines: withKey(`${KEY} ${KEY}`), ...invalidKey },
    { name: 'is spaces', lines: withKey('   '), ...invalidKey },
    { name: 'is 10 KB long', lines: withKey('orc_'.repeat(2560)), ...invalidKey },
    { name: 'is 20 KB long', lines: withKey('orc_'.repeat(5120)), ...headersTooLarge },
    { name: 'has bytes outside of ASCII', lines: withKey(`${KEY}\u00ff`), ...invalidKey },
    {
      name: 'comes in a trailer',
      lines: [...WITHOUT_KEY, 'Transfer-Encoding: chunked'],
      body: `2\r\n{}\r\n0\r\nX-Api-Key: ${KEY}\r\n\r\n`,
      statusCode: 401,
      error: 'missing_api_key',
      connection: 'usable',
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
    { name: 'is two in a list', lines: [...TRIGGER, 'Content-Length: 2, 2'], body: '{}', ...malformed },
    { name: 'has a sign', lines: [...TRIGGER, 'Content-Length: +2'], body: '{}', ...malformed },
    { name: 'is hexadecimal', lines: [...TRIGGER, 'Content-Length: 0x2'], body: '{}', ...malformed },
    { name: 'is empty', lines: [...TRIGGER, 'Content-Length:'], body: '{}', ...malformed },
    {
      name: 'is over 2^64',
      lines: [...TRIGGER, 'Content-Length: 99999999999999999999'],
      body: '{}',
      ...malformed,
    },
    { name: 'has zeros in front', lines: [...TRIGGER, 'Content-Length: 002'], body: '{}', ...accepted },
    {
      name: 'is given by both, the other way round',
      lines: [...CHUNKED, 'Content-Length: 2'],
      body: inOneChunk('{}'),
      ...malformed,
    },
    {
      name: 'is given by CHUNKED',
      lines: [...TRIGGER, 'Transfer-Encoding: CHUNKED'],
      body: inOneChunk('{}'),
      ...accepted,
    },
    {
      name: 'is given by a coding and chunks',
      lines: [...TRIGGER, 'Transfer-Encoding: gzip, chunked'],
      body: inOneChunk('{}'),
      ...unknownCoding,
    },
    {
      name: 'is given by a coding and many chunks',
      lines: [...TRIGGER, 'Transfer-Encoding: gzip, chunked'],
      body: inOneChunk(' '.repeat(2_000_000)),
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
      name: 'is given by chunks twice',
      lines: [...CHUNKED, 'Transfer-Encoding: chunked'],
      body: inOneChunk('{}'),
      ...malformed,
    },
    {
      name: 'is given by chunks and identity',
      lines: [...CHUNKED, 'Transfer-Encoding: identity'],
      body: inOneChunk('{}'),
      ...malformed,
    },
    {
      name: 'is given by something like chunked',
      lines: [...TRIGGER, 'Transfer-Encoding: xchunked'],
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
      name: 'is given by chunks in HTTP/1.0',
      lines: [`${TRIGGER[0]?.replace('1.1', '1.0')}`, ...CHUNKED.slice(1), 'Connection: keep-alive'],
      body: inOneChunk('{}'),
      ...malformed,
    },
    { name: 'is exactly the limit', ...withBody('{}'.padEnd(LIMIT)), ...accepted },
    {
      name: 'is exactly the limit, by chunks',
      lines: CHUNKED,
      body: inOneChunk('{}'.padEnd(LIMIT)),
      ...accepted,
    },
    { name: 'is one over the limit', ...withBody('{}'.padEnd(LIMIT + 1)), ...tooLarge },
    {
      name: 'is one over the limit, by chunks',
      lines: CHUNKED,
      body: inOneChunk('{}'.padEnd(LIMIT + 1)),
      ...tooLarge,
    },
  ],
  'a chunk': [
    { name: 'has an extension', lines: CHUNKED, body: '2;a=b;c="d"\r\n{}\r\n0;x\r\n\r\n', ...accepted },
    { name: 'has zeros in front of its size', lines: CHUNKED, body: '002\r\n{}\r\n00\r\n\r\n', ...accepted },
    {
      name: 'has an extension of 20 KB',
      lines: CHUNKED,
      body: `2;${'a'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`,
      ...malformed,
    },
    { name: 'has an extension without a name', lines: CHUNKED, body: '2;\r\n{}\r\n0\r\n\r\n', ...malformed },
    {
      name: 'has an extension with a line feed',
      lines: CHUNKED,
      body: '2;a\nb\r\n{}\r\n0\r\n\r\n',
      ...malformed,
    },
    { name: 'has no size', lines: CHUNKED, body: '\r\n{}\r\n0\r\n\r\n', ...malformed },
    { name: 'has a negative size', lines: CHUNKED, body: '-2\r\n{}\r\n0\r\n\r\n', ...malformed },
    { name: 'has a size with 0x', lines: CHUNKED, body: '0x2\r\n{}\r\n0\r\n\r\n', ...malformed },
    { name: 'has a space after its size', lines: CHUNKED, body: '2 \r\n{}\r\n0\r\n\r\n', ...malformed },
    { name: 'has a size over 2^64', lines: CHUNKED, body: 'fffffffffffffffff\r\n{}', ...malformed },
    { name: 'is longer than its size', lines: CHUNKED, body: '1\r\n{}\r\n0\r\n\r\n', ...malformed },
    { name: 'is shorter than its size', lines: CHUNKED, body: '3\r\n{}\r\n0\r\n\r\n', ...malformed },
    { name: 'ends in bare line feeds', lines: CHUNKED, body: '2\n{}\n0\n\n', ...malformed },
    {
      name: 'is followed by a malformed trailer',
      lines: CHUNKED,
      body: '2\r\n{}\r\n0\r\nno colon\r\n\r\n',
      ...malformed,
    },
    {
      name: 'is followed by a Content-Length as a trailer',
      lines: CHUNKED,
      body: '2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n',
      ...malformed,
    },
    {
      name: 'is followed by a trailer of 20 KB',
      lines: CHUNKED,
      body: `2\r\n{}\r\n0\r\nX-Large: ${'a'.repeat(20_000)}\r\n\r\n`,
      ...headersTooLarge,
    },
  ],
  'the body': [
    { name: 'is empty', ...withBody(''), ...accepted },
    { name: 'is empty, by chunks', lines: CHUNKED, body: '0\r\n\r\n', ...accepted },
    { name: 'is white space', ...withBody(' \r\n\t'), ...invalidJson },
    { name: 'begins with a byte order mark', ...withBody('\ufeff{}'), ...invalidJson },
    { name: 'is invalid UTF-8', ...withBody(Buffer.from('{"a":"\xff"}', 'latin1')), ...invalidJson },
    { name: 'is UTF-16', ...withBody(Buffer.from('\ufeff{}', 'utf16le')), ...invalidJson },
    { name: 'is cut off', ...withBody('{"a":'), ...invalidJson },
    { name: 'is a number', ...withBody('1'), ...invalidPayload },
    { name: 'is a string', ...withBody('"{}"'), ...invalidPayload },
    { name: 'is true', ...withBody('true'), ...invalidPayload },
    { name: 'is null', ...withBody('null'), ...invalidPayload },
    { name: 'is an array', ...withBody('[{}]'), ...invalidPayload },
    { name: 'has a key twice', ...withBody('{"a":1,"a":2}'), ...accepted },
    { name: 'has a number that fits no double', ...withBody('{"a":1e400}'), ...accepted },
    {
      name: 'is nested as deep as the limit allows',
      ...withBody(`{"a":${'['.repeat(LIMIT / 2 - 3)}${']'.repeat(LIMIT / 2 - 3)}}`),
      ...accepted,
    },
    {
      name: 'is nested as deep as the limit allows, and cut off',
      ...withBody(`{"a":${'['.repeat(LIMIT - 5)}`),
      ...invalidJson,
    },
    {
      name: 'is compressed',
      ...withBody(gzipSync('{}'), [...TRIGGER, 'Content-Encoding: gzip']),
      statusCode: 415,
      error: 'unsupported_content_encoding',
      connection: 'usable',
    },
    { name: 'is compressed and does not say so', ...withBody(gzipSync('{}')), ...invalidJson },
  ],
  'the content type': [
    { name: 'has the charset utf-8', ...withType('application/json; charset=utf-8'), ...accepted },
    { name: 'has a quoted charset', ...withType('Application/JSON;charset="UTF-8"'), ...accepted },
    { name: 'has another charset', ...withType('application/json; charset=iso-8859-1'), ...wrongType },
    { name: 'has an unknown parameter', ...withType('application/json; profile=x'), ...wrongType },
    { name: "is a vendor's +json", ...withType('application/vnd.example+json'), ...wrongType },
    { name: 'is text', ...withType('text/plain'), ...wrongType },
    { name: 'is malformed', ...withType('json'), ...wrongType },
    { name: 'is empty', ...withType(''), ...wrongType },
    { name: 'is there twice', ...withType('application/json', 'application/json'), ...wrongType },
    { name: 'is missing', ...withType(), ...wrongType },
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
    const requests = [post(EXPECT), post(EXPECT), post(), post(EXPECT), last()];
    const answers = { statuses: [202, 202, 202, 202, 202], end: 'closed', runs: 5 };
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
    ['a GET', () => get('/orc/health', 'Connection: Upgrade', 'Upgrade: websocket'), 200, 0],
    ['a POST', () => post(...H2C), 202, 1],
    [
      'a POST by chunks',
      () => Buffer.concat([headOf([...CHUNKED, ...H2C]), Buffer.from(inOneChunk('{}'))]),
      202,
      1,
    ],
    ['a POST that asks for 100-continue', () => post(...H2C, EXPECT), 202, 1],
    ['one that is refused', () => get('/nothing-here', ...H2C), 404, 0],
  ])(
    'when requests come in one packet behind %s that asks for an upgrade',
    async (_, request, status, runs) => {
      expect(await exchange(request(), post(), last())).toEqual({
        statuses: [status, 202, 202],
        end: 'closed',
        runs: runs + 2,
      });
      expect(await exchange(post(), get('/docs'), request(), request(), last())).toEqual({
        statuses: [202, 200, status, status, 202],
        end: 'closed',
        runs: 2 * runs + 2,
      });
      expect(await exchangeAndFinish(request(), post())).toEqual({
        statuses: [status, 202],
        end: 'closed',
        runs: runs + 1,
      });
    },
  );

  test('when many requests with long answers come before and behind one that asks for an upgrade', async () => {
    const pages = Array.from({ length: 60 }, () => get('/llms-full.txt'));
    const requests = [
      ...pages,
      get('/orc/health', ...H2C),
      post(),
      ...pages,
      get('/orc/health', ...H2C),
      last(),
    ];
    const { statuses, ...rest } = await exchange(...requests);
    expect(rest).toEqual({ end: 'closed', runs: 2 });
    expect(statuses).toHaveLength(124);
    expect(statuses.filter((status) => status !== 200)).toEqual([202, 202]);
  });

  test.each([
    ['ask for an upgrade', () => get('/orc/health', ...H2C)],
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

  test('and what follows a last request that asks for an upgrade is ignored', async () => {
    const answers = { statuses: [202], end: 'closed', runs: 1 };
    expect(await exchange(post('Connection: close, Upgrade', 'Upgrade: websocket'), post())).toEqual(answers);
  });
});

describe('a client that sends everything before it reads', () => {
  // More than the buffers of both sides hold, and more than is read of a body over the limit before it is refused.
  const MUCH = Buffer.alloc(24 * 1024 * 1024, 'x');
  const withVersion = (version: string) =>
    headOf([...TRIGGER.map((line) => line.replace('HTTP/1.1', version)), 'Content-Length: 2']);

  test.each([
    ['after a request that ends the connection', () => headOf([...TRIGGER, 'Connection: close']), 202],
    ['after a request of HTTP/0.9', () => withVersion('HTTP/0.9'), 400],
    ['after a request of HTTP/2.0', () => withVersion('HTTP/2.0'), 400],
    ['after a request that is answered in no time', () => headOf(['GET /% HTTP/0.9']), 400],
    ['after a request of HTTP/1.0', () => headOf(['GET /orc/health HTTP/1.0']), 200],
    ['after a request without a key', () => headOf([...WITHOUT_KEY, 'Connection: close']), 401],
    ['after no HTTP', () => 'hello\r\n', 400],
    ['to a tunnel', () => headOf(['CONNECT a:80 HTTP/1.1', 'Host: a:80']), 405],
    ['in a body', () => headOf([...TRIGGER, `Content-Length: ${MUCH.length}`]), 413],
  ])('%s gets its answer, and no reset', async (_, request, statusCode) => {
    const connection = await RawConnection.open(app);
    await connection.writeUnread(request(), MUCH);
    expect(await connection.nextAnswer()).toMatchObject({ statusCode });
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

  test('is cut off when it never ends', async () => {
    const connection = await RawConnection.open(app);
    await connection.writeUnread(withVersion('HTTP/2.0'), ...Array(4).fill(MUCH));
    await connection.nextAnswer();
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('reset');
  });
});

describe('what is too long and comes in several packets', () => {
  /** Sends each part after the server has read the one before. */
  async function sendInParts(...parts: string[]) {
    const accepted = once(app.server, 'connection');
    const connection = await RawConnection.open(app);
    const [socket] = (await accepted) as [Socket];
    let sent = 0;
    for (const part of parts) {
      connection.write(part);
      sent += part.length;
      await expect.poll(() => socket.bytesRead, { interval: 1 }).toBe(sent);
    }
    const answer = await connection.nextAnswer();
    expect(await connection.nextAnswer()).toBeUndefined();
    expect(connection.end).toBe('closed');
    return answer ?? expect.fail('no answer');
  }
  const long = 'a'.repeat(9000);
  const rest = '\r\nHost: a\r\n\r\n';

  test.each([
    ['ends in the packet in which it gets too long', [`GET /${long}`, `${long} HTTP/1.1${rest}`]],
    ['ends in a later packet', [`GET /${long}`, long, long, ` HTTP/1.1${rest}`]],
    ['ends between two packets', [`GET /${long}`, long, `${long} HTTP`, '/1.', '1\r', '\n']],
    ['begins in the first packet, and is too long by that', [`GET /${long}${long}`]],
  ])('a target that %s is answered 414', async (_, parts) => {
    expectError(await sendInParts(...parts), 414, 'uri_too_long');
  });

  test('a target that follows a request in its packet is answered 414', async () => {
    const connection = await RawConnection.open(app);
    connection.write(`GET /orc/health HTTP/1.1${rest}GET /${long}${long}`);
    expect(await connection.nextAnswer()).toMatchObject({ statusCode: 200 });
    expect(await connection.nextAnswer()).toMatchObject({ statusCode: 414 });
    connection.destroy();
  });

  test.each([
    ['a header', [`GET /orc/health HTTP/1.1\r\nX: ${long}`, `${long}${rest}`]],
    ['a header that ends in a later packet', [`GET / HTTP/1.1\r\nX: ${long}`, long, long, rest]],
    ['a header that never ends', [`GET / HTTP/1.1\r\nX: ${long}`, long]],
    ['a header after a long target', [`GET /${long} HTTP/1.1\r\nX: ${long}${rest}`]],
  ])('%s is answered 431', async (_, parts) => {
    expectError(await sendInParts(...parts), 431, 'headers_too_large');
  });
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

test('a 100 for a request right behind another one is never in the middle of its answer', async () => {
  const connection = await RawConnection.open(app);
  const page = ['GET /docs HTTP/1.1', 'Host: a', 'Accept: text/markdown'];
  connection.write(headOf(page));
  const { body } = (await connection.nextAnswer()) ?? {};
  connection.write(
    `${headOf([...TRIGGER, 'Content-Length: 2'])}{}`,
    headOf([...page, 'Expect: 100-continue']),
    headOf(HEALTH),
  );
  expect(await connection.nextAnswer()).toMatchObject({ statusCode: 202 });
  expect(await connection.nextAnswer()).toMatchObject({ statusCode: 200, body });
  expect(await connection.nextAnswer()).toMatchObject({ statusCode: 200, interim: [] });
  connection.destroy();
});

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
