import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { expectAccepted, expectError, openTestApp, readRun, SETTINGS, trigger } from '../support/app.ts';
import { listenRaw } from '../support/raw-http.ts';
import { createAutomation } from '../support/store.ts';

const { app, store } = openTestApp();
const send = listenRaw(app);
const LIMIT = SETTINGS.bodyLimitBytes;

let automations = 0;

/** An automation that nothing else in this file uses. */
async function newAutomation() {
  automations += 1;
  const slug = `automation-${automations}`;
  return { slug, key: await createAutomation(store, slug) };
}

/** Triggers a new automation, with a body as JSON unless the headers say something else. */
async function triggerNew(payload?: string | Buffer, headers?: Record<string, string>) {
  const { slug, key } = await newAutomation();
  return app.inject(trigger(slug, key, payload, headers));
}

/** The payload that the run of an accepted trigger gets. */
async function payloadOf(answer: Awaited<ReturnType<typeof triggerNew>>): Promise<string> {
  return (await readRun(store, expectAccepted(answer))).payload.toString();
}

describe('an accepted trigger', () => {
  test('is a 202 with the run identifier and the status, and nothing else', async () => {
    const answer = await triggerNew('{"a":1}');
    expectAccepted(answer);
    expect(Object.keys(answer.json())).toEqual(['runId', 'status']);
    expect(answer.headers['cache-control']).toBe('no-store');
  });

  test('is the newest run of all automations, whether it is the first with its key or not', async () => {
    const { slug, key } = await newAutomation();
    const other = await newAutomation();
    for (const each of [{ slug, key }, other, { slug, key }, other]) {
      const runId = expectAccepted(await app.inject(trigger(each.slug, each.key)));
      expect(await store.runs.list({ limit: 1 })).toMatchObject([{ id: runId, automation: each.slug }]);
    }
  });

  test('is a run in the queue, of that automation, with that payload', async () => {
    const { slug, key } = await newAutomation();
    const runId = expectAccepted(
      await app.inject(trigger(slug, key, '{"a":1}', { 'x-request-id': 'ci-17' })),
    );
    expect(await store.runs.get(runId)).toMatchObject({
      automation: slug,
      status: 'queued',
      requestId: 'ci-17',
    });
    const run = await readRun(store, runId);
    expect(run).toMatchObject({ id: runId, automation: slug, payload: Buffer.from('{"a":1}') });
    expect(run.automationId).toBe((await store.automations.get(slug))?.id);
  });

  test('is one run for each request', async () => {
    const { slug, key } = await newAutomation();
    const answers = await Promise.all([1, 2, 3].map(() => app.inject(trigger(slug, key, '{}'))));
    expect(new Set(answers.map(expectAccepted)).size).toBe(3);
    expect(await store.runs.list({ automation: slug, limit: 10 })).toHaveLength(3);
  });

  test('hands a valid traceparent on to the run, and leaves out one that is not valid', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const traced = await readRun(store, expectAccepted(await triggerNew('{}', { traceparent })));
    expect(traced.traceparent).toBe(traceparent);
    const untraced = await readRun(
      store,
      expectAccepted(await triggerNew('{}', { traceparent: '00-0-0-00' })),
    );
    expect(untraced).not.toHaveProperty('traceparent');
  });

  describe('with a tracestate', () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const handedOn = async (headers: Record<string, string>) => {
      const run = await readRun(store, expectAccepted(await triggerNew('{}', headers)));
      return [run.traceparent, run.tracestate];
    };
    const members = (count: number, size = 3) =>
      Array.from({ length: count }, (_, index) => `k${index}=`.padEnd(size, 'x')).join(',');

    test.each([
      ['rojo=00f067aa0ba902b7,congo=t61rcWkgMzE', 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE'],
      [' rojo=1 ,, \tcongo=2 ', 'rojo=1,congo=2'],
      ['1tenant-_*/x@system=a b:c"', '1tenant-_*/x@system=a b:c"'],
      [members(32, 5), members(32, 5)],
      [`a=${'x'.repeat(256)},b=${'x'.repeat(251)}`, `a=${'x'.repeat(256)},b=${'x'.repeat(251)}`],
    ])('hands it on to the run: %s', async (tracestate, expected) => {
      expect(await handedOn({ traceparent, tracestate })).toEqual([traceparent, expected]);
    });

    test.each([
      ['', 'empty'],
      [',', 'without a member'],
      ['rojo', 'without a value'],
      ['Rojo=1', 'with a capital'],
      ['rojo=a=b', 'with an equals sign in a value'],
      ['rojo=caf\u00e9', 'with a value beyond ASCII'],
      [`rojo=${'x'.repeat(257)}`, 'with a value that is too long'],
      [members(33), 'with 33 members'],
      [members(32, 20), 'of more than 512 characters'],
    ])('leaves out %s: one %s', async (tracestate) => {
      expect(await handedOn({ traceparent, tracestate })).toEqual([traceparent, undefined]);
    });

    test.each([
      undefined,
      '00-0-0-00',
      `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
      `00-0af7651916cd43dd8448eb211c80319c-${'0'.repeat(16)}-01`,
      'ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    ])('leaves it out without a valid traceparent: %s', async (invalid) => {
      const headers = { tracestate: 'rojo=1', ...(invalid !== undefined && { traceparent: invalid }) };
      expect(await handedOn(headers)).toEqual([undefined, undefined]);
    });
  });

  test('may carry a query, which means nothing', async () => {
    const { slug, key } = await newAutomation();
    expectAccepted(await app.inject(trigger(`${slug}?source=ci`, key, '{}')));
  });
});

describe('the body is optional:', () => {
  test.each([
    ['no body at all', undefined, {}],
    ['no body with a JSON content type', undefined, { 'content-type': 'application/json' }],
    ['an empty body', '', {}],
    ['an empty body with a content type that is not JSON', '', { 'content-type': 'text/plain' }],
    ['an empty body with a malformed content type', '', { 'content-type': 'not a media type' }],
    ['an empty body with a content length', undefined, { 'content-length': '0' }],
  ])('%s counts as an empty object', async (_, payload, headers) => {
    expect(await payloadOf(await triggerNew(payload, headers))).toBe('{}');
  });

  test('an empty chunked body counts as an empty object', async () => {
    const { slug, key } = await newAutomation();
    const answer = await send(head(slug, key, 'transfer-encoding: chunked'), '0\r\n\r\n');
    expect((await readRun(store, expectAccepted(answer))).payload.toString()).toBe('{}');
  });
});

describe('the payload reaches the run byte for byte:', () => {
  test.each([
    ['an empty object', '{}'],
    ['white space around and inside of it', '\r\n\t { "a" : 1 }\n\n'],
    ['numbers of 30 digits', '{"n":123456789012345678901234567890,"f":0.1234567890123456789012345678901}'],
    ['numbers that do not fit a double', '{"n":1e400,"m":-1e-400,"z":-0}'],
    ['a key named __proto__', '{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}'],
    ['the same key twice', '{"a":1,"a":2}'],
    ['the order of its keys', '{"b":1,"a":2,"10":3,"9":4}'],
    [
      'escapes, astral characters and lone surrogates',
      '{"a":"\\u00e9\\/\\ud800","é":"🜁","\\u0000":"\u2028"}',
    ],
  ])('%s', async (_, payload) => {
    expect(await payloadOf(await triggerNew(payload))).toBe(payload);
  });

  test('nesting as deep as the size limit allows', async () => {
    const depth = Math.floor((LIMIT - 6) / 2);
    const payload = `{"a":${'['.repeat(depth)}${']'.repeat(depth)}}`;
    expect(await payloadOf(await triggerNew(payload))).toBe(payload);
  });

  test('nothing in it changes the service', async () => {
    await triggerNew('{"__proto__":{"polluted":true}}');
    expect({}).not.toHaveProperty('polluted');
  });
});

describe('the size of the body', () => {
  const exact = Buffer.from(`{"a":"${'x'.repeat(LIMIT - 8)}"}`);
  const over = Buffer.from(`{"a":"${'x'.repeat(LIMIT - 7)}"}`);

  test('may be exactly the limit, by Content-Length and by chunks', async () => {
    expect(exact.length).toBe(LIMIT);
    expect(await payloadOf(await triggerNew(exact))).toBe(exact.toString());
    const { slug, key } = await newAutomation();
    const answer = await send(head(slug, key, 'transfer-encoding: chunked'), ...chunks(exact));
    expectAccepted(answer);
    expect(answer.connection).toBe('usable');
  });

  test('may not be one byte over the limit by Content-Length: 413', async () => {
    const { slug, key } = await newAutomation();
    expectError(await app.inject(trigger(slug, key, over)), 413, 'payload_too_large');
    const answer = await send(head(slug, key, `content-length: ${over.length}`), over);
    expectError(answer, 413, 'payload_too_large');
    expect(await store.runs.list({ automation: slug, limit: 1 })).toEqual([]);
  });

  test('may not be one byte over the limit by chunks: 413', async () => {
    const { slug, key } = await newAutomation();
    const answer = await send(head(slug, key, 'transfer-encoding: chunked'), ...chunks(over));
    expectError(answer, 413, 'payload_too_large');
    expect(await store.runs.list({ automation: slug, limit: 1 })).toEqual([]);
  });

  test('counts in bytes, not in characters', async () => {
    const twoBytesEach = `{"a":"${'é'.repeat(LIMIT / 2)}"}`;
    expect(twoBytesEach.length).toBeLessThan(LIMIT);
    expectError(await triggerNew(twoBytesEach), 413, 'payload_too_large');
  });
});

describe('a body that is not one JSON object in UTF-8 is a 400 and starts nothing:', () => {
  const notJson: [string, string | Buffer][] = [
    ['a truncated object', '{"a":'],
    ['two objects', '{}{}'],
    ['a trailing comma', '{"a":1,}'],
    ['single quotes', "{'a':1}"],
    ['a comment', '{/* a */}'],
    ['a form', 'a=1'],
    ['NaN', '{"a":NaN}'],
    ['a control character in a string', '{"a":"\u0001"}'],
    ['white space only', ' \n'],
    ['NUL only', '\0'],
    ['a byte order mark', '\ufeff{}'],
    ['invalid UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])],
    ['an overlong encoding', Buffer.from([0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d])],
    ['a surrogate in UTF-8', Buffer.from([0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x3a, 0x31, 0x7d])],
    ['UTF-16', Buffer.from('\ufeff{}', 'utf16le')],
  ];
  test.each(notJson)('%s is invalid_json', async (_, payload) => {
    const { slug, key } = await newAutomation();
    const { hint } = expectError(await app.inject(trigger(slug, key, payload)), 400, 'invalid_json');
    expect(hint).toMatch(/\/docs#payload/);
    expect(await store.runs.list({ automation: slug, limit: 1 })).toEqual([]);
  });

  test.each(['null', 'true', '1', '"text"', '[]', '[{}]', ' [1] '])(
    '%s is invalid_payload',
    async (payload) => {
      const { slug, key } = await newAutomation();
      const { hint } = expectError(await app.inject(trigger(slug, key, payload)), 400, 'invalid_payload');
      expect(hint).toMatch(/object/);
      expect(await store.runs.list({ automation: slug, limit: 1 })).toEqual([]);
    },
  );
});

describe('the content type', () => {
  test.each([
    'application/json',
    'APPLICATION/JSON',
    'application/json; charset=utf-8',
    'application/json;charset=UTF-8',
    'application/json; charset="utf-8"',
    'application/json;',
  ])('%s is accepted', async (type) => {
    expectAccepted(await triggerNew('{}', { 'content-type': type }));
  });

  test('of curl -d is a 415 whose hint shows the header to add', async () => {
    const answer = await triggerNew('{"a":1}', { 'content-type': 'application/x-www-form-urlencoded' });
    const { hint } = expectError(answer, 415, 'unsupported_media_type');
    expect(hint).toContain('content-type: application/json');
    expect(hint).toContain("-H 'content-type: application/json'");
  });

  test.each([
    'text/plain',
    'application/json; charset=latin1',
    'application/json; charset=utf-16',
    'application/vnd.example+json',
    'application/jsonl',
    'multipart/form-data; boundary=x',
    'not a media type',
    'application/',
    ';',
    '*/*',
    'application/json, text/plain',
  ])('%s is a 415', async (type) => {
    expectError(await triggerNew('{}', { 'content-type': type }), 415, 'unsupported_media_type');
  });

  test('that is missing, with a body, is a 415', async () => {
    const { slug, key } = await newAutomation();
    const { headers, ...rest } = trigger(slug, key, '{}');
    const answer = await app.inject({ ...rest, headers: { 'x-api-key': String(headers['x-api-key']) } });
    expectError(answer, 415, 'unsupported_media_type');
  });

  test('that is given twice is a 415, since nobody can tell which one is meant', async () => {
    const { slug, key } = await newAutomation();
    const answer = await send(head(slug, key, 'content-type: text/plain', 'content-length: 2'), '{}');
    expectError(answer, 415, 'unsupported_media_type');
  });
});

describe('the content encoding', () => {
  test('identity is accepted', async () => {
    expectAccepted(await triggerNew('{}', { 'content-encoding': 'identity' }));
  });

  test.each(['gzip', 'br', 'deflate', 'x-unknown', 'identity, gzip'])('%s is a 415', async (encoding) => {
    const answer = await triggerNew(gzipSync('{}'), { 'content-encoding': encoding });
    const { hint } = expectError(answer, 415, 'unsupported_content_encoding');
    expect(hint).toMatch(/content-encoding/);
  });
});

/** The head of a trigger request with a JSON body, as bytes to send. */
function head(slug: string, key: string, ...headers: string[]): string {
  return [
    `POST /orc/api/automation-triggers/${slug} HTTP/1.1`,
    'host: example.com',
    `x-api-key: ${key}`,
    'content-type: application/json',
    ...headers,
    '\r\n',
  ].join('\r\n');
}

/** A body in the chunked transfer coding, in chunks whose ends fall anywhere. */
function chunks(body: Buffer): (string | Buffer)[] {
  const parts: (string | Buffer)[] = [];
  for (let start = 0; start < body.length; start += 65_521) {
    const part = body.subarray(start, start + 65_521);
    parts.push(`${part.length.toString(16)}\r\n`, part, '\r\n');
  }
  return [...parts, '0\r\n\r\n'];
}
