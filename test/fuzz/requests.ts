import { METHODS } from 'node:http';
import fc from 'fast-check';
import { mintApiKey } from '../../src/core/api-key.ts';
import type { OpenApiDocument, OpenApiOperation } from '../support/openapi.ts';
import { PAGE_TYPES } from './page-types.ts';
import { SERVICES, type Service, type Target } from './target.ts';

/** What is sent over a connection, and what is known of it. */
export interface Exchange {
  service: Service;
  bytes: Buffer;
  /** One for each request that was meant to be one, in their order. */
  requests: { method: string; target: string; requestId?: string }[];
  /**
   * Whether HTTP leaves no doubt where each request ends, so that each gets one answer and the connection may be used
   * again. Anything may follow from the bytes otherwise.
   */
  isDelimited: boolean;
  /** How the client ends the connection as soon as the bytes are sent. Without one, it goes on with it. */
  ending?: Ending;
}

/** By closing its side only, as `nc -N` does, or by a reset some milliseconds later. */
export type Ending = { type: 'finish' } | { type: 'reset'; afterMs: number };

/** A request before it is written as bytes. */
interface Request {
  method: string;
  target: string;
  version: string;
  headers: [name: string, value: string][];
  body: Buffer;
  framing: Framing;
}

type Framing =
  | { type: 'length'; surplus?: number }
  | { type: 'chunks'; size: number; trailer?: string; error?: ChunkError }
  | { type: 'none' };

const CHUNK_ERRORS = ['size', 'end', 'cut', 'negative', 'huge', 'extension'] as const;
type ChunkError = (typeof CHUNK_ERRORS)[number];

type Mutation = (request: Request) => Request;

const CRLF = '\r\n';

/** Stays under Node's limit for a block of headers; over the limit, the rest of a request is not read. */
const SAFE_HEAD_BYTES = 12_000;

/** Headers that decide where a request or its connection ends. */
const DELIMITING_HEADERS = new Set([
  'connection',
  'content-length',
  'expect',
  'transfer-encoding',
  'keep-alive',
  'proxy-connection',
]);

/** Everything that is sent, made from what the document says can be sent. */
export function exchanges(target: Target): fc.Arbitrary<Exchange> {
  const request = requests(target);
  const mutated = fc
    .tuple(request, fc.array(mutations(bodyLimit(target.document)), { maxLength: 2 }))
    .map(([original, changes]) => changes.reduce((latest, change) => change(latest), original));
  const service = fc.oneof(
    { weight: 30, arbitrary: fc.constant<Service>('usual') },
    { weight: 1, arbitrary: fc.constantFrom(...SERVICES) },
  );
  const sequence = fc.oneof(
    { weight: 20, arbitrary: fc.tuple(mutated) },
    { weight: 1, arbitrary: fc.array(mutated, { minLength: 2, maxLength: 4 }) },
    { weight: 1, arbitrary: fc.array(request, { minLength: 2, maxLength: 6 }) },
  );
  const whole = fc.tuple(service, sequence).map(([to, list]) => exchangeOf(to, list));
  const damaged = fc
    .tuple(whole, damages)
    .map(([exchange, damage]) => ({ ...exchange, bytes: damage(exchange.bytes), isDelimited: false }));
  const ended = fc.tuple(whole, endings, cuts).map(([exchange, ending, cut]): Exchange => {
    const bytes = exchange.bytes.subarray(0, Math.ceil(exchange.bytes.length * cut));
    const isDelimited = exchange.isDelimited && bytes.length === exchange.bytes.length;
    return { ...exchange, bytes, isDelimited, ending };
  });
  return fc.oneof(
    { weight: 12, arbitrary: whole },
    { weight: 1, arbitrary: damaged },
    { weight: 1, arbitrary: ended },
  );
}

const endings: fc.Arbitrary<Ending> = fc.oneof(
  fc.constant<Ending>({ type: 'finish' }),
  fc.constantFrom(0, 0, 1, 3, 10).map((afterMs): Ending => ({ type: 'reset', afterMs })),
);

/** The share of the bytes that is sent before the end. */
const cuts = fc.oneof(fc.constant(1), fc.double({ min: 0.001, max: 1, noNaN: true }));

function exchangeOf(service: Service, list: Request[]): Exchange {
  return {
    service,
    bytes: Buffer.concat(list.map(render)),
    requests: list.map(({ method, target, headers }) => {
      const ids = headers.filter(([name]) => name.toLowerCase() === 'x-request-id');
      const requestId = ids.length === 1 && /^fuzz-\d+$/.test(ids[0]?.[1] ?? '') ? ids[0]?.[1] : undefined;
      return { method, target, ...(requestId !== undefined && { requestId }) };
    }),
    isDelimited: list.every(isDelimited),
  };
}

function isDelimited({ method, target, version, headers, framing }: Request): boolean {
  const isLyingAboutLength = framing.type === 'length' && framing.surplus !== undefined;
  const isBrokenChunk =
    framing.type === 'chunks' &&
    (framing.error !== undefined || framing.trailer?.startsWith('content-length'));
  const size = headers.reduce((sum, [name, value]) => sum + name.length + value.length + 4, target.length);
  return (
    !isLyingAboutLength &&
    !isBrokenChunk &&
    version === 'HTTP/1.1' &&
    METHODS.includes(method) &&
    method !== 'CONNECT' &&
    /^(\/|http:\/\/)[\x21-\x7e]*$/.test(target) &&
    size < SAFE_HEAD_BYTES &&
    headers.every(
      ([name, value]) =>
        /^[A-Za-z0-9-]+$/.test(name) &&
        /^[\t\x20-\x7e\x80-\xff]*$/.test(value) &&
        (!DELIMITING_HEADERS.has(name.toLowerCase()) || isIgnored(name, value)),
    )
  );
}

/** Of the headers that decide about a connection, those that change nothing. */
function isIgnored(name: string, value: string): boolean {
  return ['connection: upgrade', 'expect: 100-continue'].includes(`${name}: ${value}`);
}

function render(request: Request): Buffer {
  const { method, target, version, headers, body, framing } = request;
  const fields = [...headers];
  if (framing.type === 'length')
    fields.push(['content-length', String(body.length + (framing.surplus ?? 0))]);
  if (framing.type === 'chunks') fields.push(['transfer-encoding', 'chunked']);
  const lines = [`${method} ${target} ${version}`, ...fields.map(([name, value]) => `${name}: ${value}`)];
  const head = Buffer.from(`${lines.join(CRLF)}${CRLF}${CRLF}`, 'latin1');
  if (framing.type === 'none') return head;
  return Buffer.concat([head, framing.type === 'chunks' ? chunked(body, framing) : body]);
}

/** RFC 9112, section 7.1, with at most one thing wrong, in the second half of the chunks. */
function chunked(
  body: Buffer,
  { size, trailer, error }: { size: number; trailer?: string; error?: ChunkError },
): Buffer {
  const parts: Buffer[] = [];
  const wrongAt = Math.floor(body.length / size / 2) * size;
  for (let start = 0; start < body.length; start += size) {
    const chunk = body.subarray(start, start + size);
    const [sizeLine, end] = chunkFrame(chunk.length, start === wrongAt ? error : undefined);
    parts.push(Buffer.from(`${sizeLine}${CRLF}`, 'latin1'), chunk, Buffer.from(end));
  }
  if (error !== 'cut') parts.push(Buffer.from(`0${CRLF}${trailer ? `${trailer}${CRLF}` : ''}${CRLF}`));
  return Buffer.concat(parts);
}

function chunkFrame(length: number, error: ChunkError | undefined): [sizeLine: string, end: string] {
  const size = length.toString(16);
  const sizes: Partial<Record<ChunkError, string>> = {
    size: `z${size}`,
    negative: `-${size}`,
    huge: `fffffffffffffffff${size}`,
    extension: `${size};${'e'.repeat(20_000)}`,
  };
  return [(error && sizes[error]) ?? size, error === 'end' ? '' : CRLF];
}

/** Requests as the document describes them: mostly in order, with every part at times being something else. */
function requests(target: Target): fc.Arbitrary<Request> {
  const described = Object.entries(target.document.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({
      weight: operation.security ? 8 : 2,
      arbitrary: operationRequests(target, path, method.toUpperCase(), operation),
    })),
  );
  const undescribed = fc
    .tuple(fc.constantFrom(...PAGE_TYPES.keys(), '/favicon.ico', '/nothing/here'), headerSets([]))
    .map(([path, headers]): Request => emptyRequest('GET', path, headers));
  return fc.oneof(...described, { weight: 1, arbitrary: undescribed });
}

function emptyRequest(method: string, target: string, headers: Request['headers']): Request {
  return { method, target, version: 'HTTP/1.1', headers, body: Buffer.alloc(0), framing: { type: 'none' } };
}

function operationRequests(
  target: Target,
  path: string,
  method: string,
  operation: OpenApiOperation,
): fc.Arbitrary<Request> {
  const { parameters = [], security = [], requestBody } = operation;
  const { securitySchemes } = target.document.components;
  const schemeNames = security.flatMap((requirement) => Object.keys(requirement));
  const keyHeaders = schemeNames.flatMap((name) => securitySchemes[name]?.name ?? []);
  const headerParameters = parameters.filter((parameter) => parameter.in === 'header');
  const pathParameters = parameters.filter((parameter) => parameter.in === 'path');
  const mediaTypes = Object.keys(requestBody?.content ?? {});

  const automation = fc.constantFrom(...target.automations);
  const values = fc.record({
    automation,
    params: fc.tuple(...pathParameters.map(({ schema }) => mostly(fc.constant(''), parameterValue(schema)))),
    keys: fc.tuple(...keyHeaders.map(() => mostly(fc.constant(''), apiKeys(target)))),
    headers: headerSets(headerParameters),
    mediaType: mediaTypes.length > 0 ? fc.constantFrom(...mediaTypes) : fc.constant(''),
    body: requestBody ? bodies : fc.constant(Buffer.alloc(0)),
    framing: framings,
  });
  return values.map(({ automation: { slug, apiKey }, params, keys, headers, mediaType, body, framing }) => {
    // An empty value stands for the one that goes with the automation.
    const targetPath = pathParameters.reduce(
      (latest, { name }, index) => latest.replace(`{${name}}`, params[index] || slug),
      path,
    );
    const keyFields = keyHeaders.flatMap((name, index): Request['headers'] =>
      keys[index] === undefined ? [] : [[name, keys[index] || apiKey]],
    );
    const request = emptyRequest(method, targetPath, [...headers, ...keyFields]);
    if (body.length === 0) return request;
    return {
      ...request,
      headers: [...request.headers, ['content-type', mediaType]],
      body,
      framing: framing as Framing,
    };
  });
}

function mostly<T, U>(usual: fc.Arbitrary<T>, other: fc.Arbitrary<U>, weight = 5): fc.Arbitrary<T | U> {
  return fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: other });
}

/** Values of a parameter by its schema, and values that are not. */
function parameterValue({
  pattern,
  maxLength,
}: {
  pattern: string;
  maxLength?: number;
}): fc.Arbitrary<string> {
  const matching = fc.stringMatching(new RegExp(pattern));
  return fc.oneof(
    maxLength === undefined ? matching : matching.map((value) => value.slice(0, maxLength)),
    fc.string({ unit: 'binary', maxLength: 40 }).map((value) => encodeURIComponent(value)),
    fc.constantFrom('%2F', '%00', '%2e%2e', '..', ';x=1', '%', '%zz', '%ff', '-', 'A', 'a'.repeat(65)),
  );
}

function apiKeys({ automations }: Target): fc.Arbitrary<string | undefined> {
  return fc.oneof(
    fc.constant(undefined),
    fc.constantFrom(...automations.map(({ apiKey }) => apiKey)),
    fc.constantFrom(mintApiKey(), mintApiKey()),
    fc.stringMatching(/^orc_[0-9A-Za-z]{40,60}$/),
    fc.stringMatching(/^[\x20-\x7e\x80-\xff]{0,80}$/),
  );
}

const someAddress = fc.nat({ max: 4999 }).map((n) => `10.1.${Math.floor(n / 250)}.${n % 250}`);

/** What a header without a pattern may hold. */
const TEXT = '^[\\x20-\\x7e]{0,80}$';

function headerSets(
  parameters: { name: string; schema: { pattern?: string } }[],
): fc.Arbitrary<Request['headers']> {
  const optional = [
    ...parameters.map(({ name, schema }) =>
      header(
        name,
        mostly(fc.nat({ max: 50 }).map(String), fc.stringMatching(new RegExp(schema.pattern ?? TEXT))),
      ),
    ),
    header('accept', fc.constantFrom('*/*', 'text/markdown', 'text/html;q=0.5, */*;q=0.1', ';;,', 'x')),
    header('user-agent', fc.stringMatching(/^[\x20-\x7e\x80-\xff]{0,30}$/)),
    header('traceparent', fc.stringMatching(/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/)),
  ];
  const address = mostly(someAddress, fc.constant('10.0.0.1'));
  return fc
    .tuple(address, fc.nat(), fc.subarray([0, 1, 2, 3]), fc.tuple(...optional))
    .map(([from, id, chosen, fields]): Request['headers'] => [
      ['host', 'example.com'],
      ['x-forwarded-for', from],
      ['x-request-id', `fuzz-${id}`],
      ...chosen.flatMap((index) => fields[index] ?? []).map((field): [string, string] => field),
    ]);
}

function header(name: string, value: fc.Arbitrary<string>): fc.Arbitrary<[string, string][]> {
  return value.map((text) => [[name, text]]);
}

const objects = fc
  .dictionary(
    fc.oneof(fc.string(), fc.constantFrom('__proto__', 'constructor', 'toString')),
    fc.jsonValue(),
    {
      maxKeys: 4,
    },
  )
  .map((value) => Buffer.from(JSON.stringify(value)));

/** Bodies by the schema, which allows any object, and some that are none. */
const bodies: fc.Arbitrary<Buffer> = fc.oneof(
  { weight: 4, arbitrary: objects },
  { weight: 4, arbitrary: fc.constant(Buffer.alloc(0)) },
  { weight: 4, arbitrary: fc.constantFrom(Buffer.from('{}'), Buffer.from('{"same":1}')) },
  { weight: 1, arbitrary: fc.json().map((text) => Buffer.from(text)) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom(
        'null',
        '{"n":1e400}',
        '{"a":1,"a":2}',
        ' ',
        '\ufeff{}',
        `${'['.repeat(5000)}${']'.repeat(5000)}`,
        `${'{"a":'.repeat(2000)}1${'}'.repeat(2000)}`,
        '{"a":"\\ud800"}',
        '{}{}',
      )
      .map((text) => Buffer.from(text)),
  },
);

const framings: fc.Arbitrary<Framing> = fc.oneof(
  { weight: 6, arbitrary: fc.constant<Framing>({ type: 'length' }) },
  {
    weight: 2,
    arbitrary: fc.record({ type: fc.constant('chunks' as const), size: fc.integer({ min: 4, max: 4096 }) }),
  },
);

/** The limit that the document states at the request body. */
function bodyLimit(document: OpenApiDocument): number {
  const descriptions = Object.values(document.paths)
    .flatMap((operations) => Object.values(operations))
    .map(({ requestBody }) => requestBody?.description ?? '');
  const limit = Number(/at most (\d+) bytes/.exec(descriptions.join(' '))?.[1]);
  if (Number.isNaN(limit)) throw new Error('the document states no limit for bodies');
  return limit;
}

/** Changes that make a request another one, at the level of HTTP. */
function mutations(limitBytes: number): fc.Arbitrary<Mutation> {
  const oversized = fc
    .constantFrom(limitBytes - 1, limitBytes, limitBytes + 1, limitBytes * 3)
    .map((size) => Buffer.from(`{${' '.repeat(size - 2)}}`));
  return fc.oneof(
    methodChanges,
    targetChanges,
    versionChanges,
    headerChanges,
    bodyChanges,
    fc.tuple(oversized, framings).map(([body, framing]) => change({ body, framing })),
    framingChanges,
  );
}

function change(changes: Partial<Request>): Mutation {
  return (request) => ({ ...request, ...changes });
}

const methodChanges: fc.Arbitrary<Mutation> = fc
  .oneof(
    { weight: 4, arbitrary: fc.constantFrom(...METHODS, 'HEAD', 'OPTIONS', 'GET', 'POST') },
    { weight: 1, arbitrary: fc.constantFrom('get', 'BREW', 'PRI', 'G3T', '', ' POST', 'POSTPOST') },
  )
  .map((method) => change({ method }));

const targetChanges: fc.Arbitrary<Mutation> = fc
  .tuple(
    fc.constantFrom(
      '?',
      '/',
      '//',
      '/..',
      '%2F',
      '%',
      '%zz',
      '#',
      ';a',
      '\\',
      'http',
      ' ',
      '\u00e9',
      '\0',
      '*',
    ),
    fc.string({ maxLength: 20, unit: 'binary-ascii' }).map(encodeURIComponent),
    fc.constantFrom('after', 'before', 'instead', 'absolute', 'long', 'repeated'),
  )
  .map(([mark, text, place]): Mutation => {
    return (request) => {
      const { target } = request;
      const targets: Record<typeof place, string> = {
        after: `${target}${mark}${text}`,
        before: `${mark}${text}${target}`,
        instead: `${mark}${text}`,
        absolute: `http://example.com${target}`,
        long: `${target}?${text}${'a'.repeat(9000)}`,
        repeated: `${target}${target}`,
      };
      return { ...request, target: targets[place] };
    };
  });

const versionChanges: fc.Arbitrary<Mutation> = fc
  .constantFrom(
    'HTTP/1.0',
    'HTTP/1.2',
    'HTTP/2.0',
    'RTSP/1.0',
    'HTTP/0.9',
    'HTTP/1',
    'http/1.1',
    '',
    'ICE/1.0',
  )
  .map((version) => change({ version }));

const hostileHeader: fc.Arbitrary<[string, string]> = fc.oneof(
  fc.tuple(
    fc.constantFrom('connection', 'expect', 'upgrade', 'transfer-encoding', 'content-length', 'te'),
    fc.constantFrom(
      'close',
      'keep-alive',
      'upgrade',
      '100-continue',
      '200-ok',
      'h2c',
      'chunked',
      'gzip',
      '0',
      '5',
    ),
  ),
  fc.tuple(
    fc.constantFrom(
      'content-type',
      'content-encoding',
      'Idempotency-Key',
      'X-API-KEY',
      'Host',
      'x-request-id',
    ),
    fc.oneof(
      fc.constantFrom(
        '',
        'gzip',
        'identity',
        'text/plain',
        'application/json; charset=utf-16',
        'a/b+json',
        '/',
        ';',
      ),
      fc.stringMatching(/^[\x20-\x7e\x80-\xff]{0,300}$/),
    ),
  ),
  fc.tuple(
    fc.constantFrom(
      'x-forwarded-for',
      'x-forwarded-host',
      'x-forwarded-proto',
      'forwarded',
      'traceparent',
      'tracestate',
    ),
    fc.constantFrom('', ',', 'a, b', '::1', '999.1.1.1', '<script>', 'https', '[::1]:0', '10.0.0.1'),
  ),
  fc.tuple(
    fc.constantFrom('x', 'x y', 'x:', '', '\u00e9', 'x\0', ' x', '__proto__', 'constructor'),
    fc.string(),
  ),
  fc.tuple(
    fc.constant('x-large'),
    fc.constantFrom(5000, 17_000).map((size) => 'a'.repeat(size)),
  ),
  fc.tuple(fc.constant('x-value'), fc.constantFrom('a\r\n b', 'a\0b', 'a\nb: c', 'a\rb', '\x7f', '\x01')),
);

const headerChanges: fc.Arbitrary<Mutation> = fc.oneof(
  fc
    .constantFrom<[string, string][]>(
      [
        ['connection', 'upgrade'],
        ['upgrade', 'h2c'],
      ],
      [['expect', '100-continue']],
    )
    .map(
      (added): Mutation =>
        (request) => ({ ...request, headers: [...request.headers, ...added] }),
    ),
  fc.tuple(hostileHeader, fc.nat({ max: 8 })).map(
    ([added, at]): Mutation =>
      (request) => ({ ...request, headers: request.headers.toSpliced(at, 0, added) }),
  ),
  fc.tuple(hostileHeader).map(
    ([added]): Mutation =>
      (request) => ({
        ...request,
        headers: [...request.headers.filter(([name]) => name !== added[0].toLowerCase()), added],
      }),
  ),
  fc.tuple(fc.nat({ max: 8 }), fc.constantFrom('doubled', 'removed', 'oversized', 'many')).map(
    ([index, how]): Mutation =>
      (request) => {
        const at = index % Math.max(request.headers.length, 1);
        const [name, value] = request.headers[at] ?? ['x', ''];
        const replacements: Record<typeof how, [string, string][]> = {
          doubled: [
            [name, value],
            [name.toUpperCase(), value],
          ],
          removed: [],
          oversized: [[name, value.repeat(1000)]],
          many: Array.from({ length: 2500 }, () => ['n', '']),
        };
        return { ...request, headers: request.headers.toSpliced(at, 1, ...replacements[how]) };
      },
  ),
);

const bodyChanges: fc.Arbitrary<Mutation> = fc
  .tuple(fc.nat(), fc.constantFrom('flip', 'truncate', 'invalid-utf8', 'utf16', 'bom', 'gzip'))
  .map(([at, how]): Mutation => {
    return (request) => {
      const { body } = request;
      const index = body.length === 0 ? 0 : at % body.length;
      const flipped = Buffer.from(body);
      if (body.length > 0) flipped[index] = (flipped[index] ?? 0) ^ (1 << (at % 8));
      const changed: Record<typeof how, Buffer> = {
        flip: flipped,
        truncate: body.subarray(0, index),
        'invalid-utf8': Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}')]),
        utf16: Buffer.from(body.toString(), 'utf16le'),
        bom: Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), body]),
        gzip: Buffer.from([0x1f, 0x8b, 8, 0, 0, 0]),
      };
      const framing: Framing = request.framing.type === 'none' ? { type: 'length' } : request.framing;
      return { ...request, body: changed[how], framing };
    };
  });

const framingChanges: fc.Arbitrary<Mutation> = fc
  .oneof(
    fc.integer({ min: -3, max: 40 }).map((surplus): Framing => ({ type: 'length', surplus })),
    fc.record({
      type: fc.constant('chunks' as const),
      size: fc.integer({ min: 2, max: 4096 }),
      error: fc.constantFrom(...CHUNK_ERRORS),
    }),
    fc
      .constantFrom('x-t: 1', 'x-api-key: x', 'content-length: 3')
      .map((trailer): Framing => ({ type: 'chunks', size: 8, trailer })),
  )
  .map((framing) => change({ framing }));

/** Changes to what is sent that take no notice of where anything begins or ends. */
const damages: fc.Arbitrary<(bytes: Buffer) => Buffer> = fc
  .tuple(
    fc.nat({ max: 2000 }),
    fc.constantFrom('flip', 'truncate', 'insert', 'remove', 'double', 'append'),
    fc.uint8Array({ minLength: 1, maxLength: 12 }),
  )
  .map(([position, how, noise]) => {
    return (bytes: Buffer) => {
      const at = position % Math.max(bytes.length, 1);
      const before = bytes.subarray(0, at);
      const flipped = Buffer.from([(bytes[at] ?? 0) ^ (1 << ((noise[0] ?? 0) % 8))]);
      const damaged: Record<typeof how, Uint8Array[]> = {
        flip: [before, flipped, bytes.subarray(at + 1)],
        truncate: [before],
        insert: [before, noise, bytes.subarray(at)],
        remove: [before, bytes.subarray(at + noise.length)],
        double: [bytes.subarray(0, at + noise.length), bytes.subarray(at)],
        append: [bytes, noise],
      };
      return Buffer.concat(damaged[how]);
    };
  });
