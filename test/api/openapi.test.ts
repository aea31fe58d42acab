import { Validator } from '@seriousme/openapi-schema-validator';
import type { InjectOptions } from 'fastify';
import { beforeAll, describe, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { SLUG_MAX_LENGTH, SLUG_PATTERN } from '../../src/core/automation.ts';
import { ERRORS } from '../../src/core/errors.ts';
import { openTestApp, SETTINGS, trigger } from '../support/app.ts';
import { type OpenApiDocument, type OpenApiOperation, schemaChecker } from '../support/openapi.ts';
import { createAutomation } from '../support/store.ts';

const { app, store } = openTestApp();

let document: OpenApiDocument;
let health: OpenApiOperation;
let triggering: OpenApiOperation;
let check: Awaited<ReturnType<typeof schemaChecker>>;

beforeAll(async () => {
  document = await fetchDocument();
  health = operation('/orc/health', 'get');
  triggering = operation('/orc/api/automation-triggers/{slug}', 'post');
  check = await schemaChecker(document);
});

async function fetchDocument(host = 'orc.example.com'): Promise<OpenApiDocument> {
  return (await app.inject({ url: '/openapi.json', headers: { host } })).json();
}

function operation(path: string, method: string): OpenApiOperation {
  const found = document.paths[path]?.[method];
  if (!found) throw new Error(`${method} ${path} is not described`);
  return found;
}

describe('the OpenAPI document', () => {
  test('is served as JSON', async () => {
    const answer = await app.inject('/openapi.json');
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toMatch(/^application\/json/);
  });

  test('is valid OpenAPI 3.1, and the version of the description is 1.0.0', async () => {
    const { valid, errors } = await new Validator().validate({ ...document });
    expect(errors ?? []).toEqual([]);
    expect(valid).toBe(true);
    expect(document.openapi).toMatch(/^3\.1\.\d+$/);
    expect(document.info.version).toBe('1.0.0');
  });

  test('describes exactly the two operations', () => {
    const operations = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.keys(item).map((method) => `${method} ${path}`),
    );
    expect(operations.sort()).toEqual(['get /orc/health', 'post /orc/api/automation-triggers/{slug}']);
  });

  test('has named components only', () => {
    expect(Object.keys(document.components.schemas).sort()).toEqual([
      'AcceptedRun',
      'ErrorObject',
      'HealthReport',
      'HealthStatus',
      'RunEndReason',
      'RunOutcome',
      'RunStatus',
      'TriggerPayload',
      'UnhealthyReport',
      'UnhealthyStatus',
    ]);
    const references = JSON.stringify(document).match(/"\$ref":"[^"]*"/g) ?? [];
    expect(references.length).toBeGreaterThan(0);
    for (const reference of references)
      expect(reference).toMatch(/^"\$ref":"#\/components\/schemas\/[A-Z]\w+"$/);
  });
});

describe('its server is', () => {
  test('the origin of the request', async () => {
    expect((await fetchDocument('orc.example.com:8443')).servers).toEqual([
      { url: 'http://orc.example.com:8443' },
    ]);
    expect((await fetchDocument('[::1]:3000')).servers).toEqual([{ url: 'http://[::1]:3000' }]);
  });

  test.each([
    'evil.example/path',
    'user@evil.example',
    'evil"onload=x',
    '<script>',
    'evil.example\\@x',
    'a b',
    'a:99999999',
    'javascript:alert(1)',
  ])('never a Host header that is no host: %s', async (host) => {
    const answer = await app.inject({ url: '/openapi.json', headers: { host } });
    expect(answer.json().servers).toEqual([{ url: 'http://localhost' }]);
    expect(answer.body).not.toContain(host);
  });

  test('not what a proxy says that nobody has declared trusted', async () => {
    const headers = {
      host: 'orc.example.com',
      'x-forwarded-host': 'evil.example',
      'x-forwarded-proto': 'https',
    };
    const answer = await app.inject({ url: '/openapi.json', headers });
    expect(answer.json().servers).toEqual([{ url: 'http://orc.example.com' }]);
  });

  describe('with a trusted proxy', () => {
    const { app: proxied } = openTestApp({ trustedProxies: ['127.0.0.1'] });

    test('what that proxy says, and what no other one says', async () => {
      const headers = {
        host: 'internal',
        'x-forwarded-host': 'orc.example.com',
        'x-forwarded-proto': 'https',
      };
      const request = { url: '/openapi.json', headers };
      const trusted = await proxied.inject({ ...request, remoteAddress: '127.0.0.1' });
      expect(trusted.json().servers).toEqual([{ url: 'https://orc.example.com' }]);
      const other = await proxied.inject({ ...request, remoteAddress: '192.0.2.1' });
      expect(other.json().servers).toEqual([{ url: 'http://internal' }]);
    });
  });

  describe('with PUBLIC_URL', () => {
    const { app: configured } = openTestApp({ publicUrl: 'https://api.example.com/' });

    test('that, whatever the Host header says', async () => {
      const answer = await configured.inject({
        url: '/openapi.json',
        headers: { host: 'other.example.com' },
      });
      expect(answer.json().servers).toEqual([{ url: 'https://api.example.com' }]);
    });
  });
});

describe('the trigger operation', () => {
  test('needs the key in x-api-key, and health needs nothing', () => {
    expect(document.components.securitySchemes).toEqual({
      apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: expect.any(String) },
    });
    expect(triggering.security).toEqual([{ apiKey: [] }]);
    expect(health.security ?? document.security).toEqual([]);
  });

  test('has the slug as its only required parameter, with the rule for slugs', () => {
    const required = triggering.parameters?.filter((parameter) => parameter.required);
    expect(required).toHaveLength(1);
    expect(required?.[0]).toMatchObject({
      name: 'slug',
      in: 'path',
      required: true,
      schema: { type: 'string', pattern: SLUG_PATTERN, maxLength: SLUG_MAX_LENGTH },
    });
  });

  test('has an optional body, which is any JSON object up to the limit', () => {
    const { requestBody } = triggering;
    expect(requestBody?.required).toBe(false);
    expect(Object.keys(requestBody?.content ?? {})).toEqual(['application/json']);
    expect(requestBody?.description).toContain(String(SETTINGS.bodyLimitBytes));
    const reference = requestBody?.content['application/json']?.schema.$ref ?? '';
    expect(reference).toBe('#/components/schemas/TriggerPayload');
    expect(check(reference, { any: ['thing'] })).toBeUndefined();
    for (const value of [[], null, 'text', 1]) expect(check(reference, value)).toBeDefined();
  });
});

/** Whatever an operation can answer: status, schema, and the examples, which are the identifiers of errors. */
const EVERY_REQUEST = [
  ['404', 'ErrorObject', ['not_found']],
  ['405', 'ErrorObject', ['method_not_allowed']],
  ['408', 'ErrorObject', ['request_timeout']],
  ['414', 'ErrorObject', ['uri_too_long']],
  ['417', 'ErrorObject', ['expectation_failed']],
  ['431', 'ErrorObject', ['headers_too_large']],
  ['500', 'ErrorObject', ['internal_error']],
  ['501', 'ErrorObject', ['unsupported_transfer_encoding']],
] as const;
const ANSWERS = {
  getHealth: [
    ['200', 'HealthReport', ['ok', 'degraded']],
    ['400', 'ErrorObject', ['bad_request']],
    ...EVERY_REQUEST,
    ['503', 'UnhealthyReport', ['unavailable']],
  ],
  triggerAutomation: [
    ['202', 'AcceptedRun', ['accepted', 'replayed', 'represented']],
    ['400', 'ErrorObject', ['bad_request', 'invalid_idempotency_key', 'invalid_json', 'invalid_payload']],
    ['401', 'ErrorObject', ['missing_api_key', 'invalid_api_key']],
    ['403', 'ErrorObject', ['automation_disabled']],
    ['413', 'ErrorObject', ['payload_too_large']],
    ['415', 'ErrorObject', ['unsupported_media_type', 'unsupported_content_encoding']],
    ['422', 'ErrorObject', ['idempotency_key_reused']],
    ['429', 'ErrorObject', ['too_many_failures', 'rate_limited']],
    ...EVERY_REQUEST,
    ['503', 'ErrorObject', ['queue_unavailable', 'queue_full']],
  ],
} as const;
const answers = Object.entries(ANSWERS).flatMap(([id, statuses]) =>
  statuses.map(([status, schema, examples]) => [id, status, schema, examples] as const),
);

describe('every answer is described:', () => {
  test('no status is missing, and none is there that cannot be', () => {
    for (const each of [health, triggering]) {
      const statuses = ANSWERS[each.operationId as keyof typeof ANSWERS].map(([status]) => status);
      expect(Object.keys(each.responses).sort()).toEqual([...statuses].sort());
    }
  });

  test.each(answers)('%s %s is a %s, with an example of each kind', (id, status, schema, examples) => {
    const response = [health, triggering].find(({ operationId }) => operationId === id)?.responses[status];
    expect(response?.description).not.toBe('');
    expect(Object.keys(response?.content ?? {})).toEqual(['application/json']);
    const content = response?.content['application/json'];
    expect(content?.schema).toEqual({ $ref: `#/components/schemas/${schema}` });
    expect(Object.keys(content?.examples ?? {}).sort()).toEqual([...examples].sort());
    for (const { value } of Object.values(content?.examples ?? {})) {
      expect(check(`#/components/schemas/${schema}`, value)).toBeUndefined();
    }
  });

  test('an example of an error is what is answered', () => {
    for (const each of [health, triggering]) {
      for (const [status, { content }] of Object.entries(each.responses)) {
        for (const { value } of Object.values(content['application/json']?.examples ?? {})) {
          const { statusCode, error } = value as { statusCode?: number; error?: keyof typeof ERRORS };
          if (error === undefined) continue;
          const { message, hint } = ERRORS[error];
          expect(value).toMatchObject({ statusCode: Number(status), message, hint });
          expect(statusCode).toBe(ERRORS[error].statusCode);
        }
      }
    }
  });

  test('every 429 and 503 describes Retry-After, and everything x-request-id', () => {
    for (const each of [health, triggering]) {
      for (const [status, { headers }] of Object.entries(each.responses)) {
        expect(headers).toHaveProperty('x-request-id');
        expect([status, 'retry-after' in headers]).toEqual([status, ['429', '503'].includes(status)]);
      }
    }
  });

  test('the schema of errors demands what the contract demands, and lets the rest be absent', () => {
    const reference = '#/components/schemas/ErrorObject';
    expect(check(reference, { statusCode: 401, message: 'No.' })).toBeUndefined();
    expect(check(reference, { statusCode: 401, error: 'x', hint: 'y' })).toBeDefined();
    expect(check(reference, { message: 'No.' })).toBeDefined();
    expect(check(reference, { statusCode: '401', message: 'No.' })).toBeDefined();
  });
});

describe('what the service really answers', () => {
  const requests: [string, () => InjectOptions][] = [
    ['to a health check', () => ({ url: '/orc/health' })],
    ['to a trigger', () => trigger('real', key, '{}')],
    ['to a trigger without a key', () => trigger('real', undefined)],
    ['to a trigger with a wrong key', () => trigger('real', mintApiKey())],
    ['to a trigger of a disabled automation', () => trigger('real-disabled', disabledKey)],
    ['to invalid JSON', () => trigger('real', key, '{')],
    ['to an array', () => trigger('real', key, '[]')],
    ['to text', () => trigger('real', key, '{}', { 'content-type': 'text/plain' })],
    ['to a compressed body', () => trigger('real', key, '{}', { 'content-encoding': 'gzip' })],
    ['to a body over the limit', () => trigger('real', key, ' '.repeat(SETTINGS.bodyLimitBytes + 1))],
  ];
  let key = '';
  let disabledKey = '';
  beforeAll(async () => {
    key = await createAutomation(store, 'real');
    disabledKey = await createAutomation(store, 'real-disabled', { enabled: false });
  });

  test.each(requests)('%s is described', async (_, request) => {
    const { url } = request();
    const answer = await app.inject(request());
    const described = (url === '/orc/health' ? health : triggering).responses[answer.statusCode];
    const content = described?.content['application/json'];
    expect(content).toBeDefined();
    expect(check(content?.schema.$ref ?? '', answer.json())).toBeUndefined();
    const { error } = answer.json();
    if (error !== undefined) expect(content?.examples).toHaveProperty(error);
  });
});
