import type { TSchema } from '@sinclair/typebox';
import type { InjectOptions } from 'fastify';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  AcceptedRunSchema,
  ApiKeyHeaderSchema,
  ErrorObjectSchema,
  HealthReportSchema,
  TriggerHeadersSchema,
  TriggerParamsSchema,
  TriggerPayloadSchema,
} from '../../src/api/schemas.ts';
import { openTestApp, trigger } from '../support/app.ts';
import { createAutomation } from '../support/store.ts';

interface Case {
  schema: TSchema;
  /** What is another than in the service. */
  changed: Record<string, unknown>;
  request: (apiKey: string) => InjectOptions;
  /** Status, and the identifier of the error or the names of the fields. */
  before: string;
  after: string;
}

const ACCEPTED = '202 runId,status';
const accepted = (apiKey: string) => trigger('judged', apiKey, '{"a":1}', { 'idempotency-key': 'one' });

const CASES: Record<string, Case> = {
  'x-api-key': {
    schema: ApiKeyHeaderSchema.properties['x-api-key'],
    changed: { pattern: '^other' },
    request: accepted,
    before: ACCEPTED,
    after: '401 invalid_api_key',
  },
  'the slug': {
    schema: TriggerParamsSchema.properties.slug,
    changed: { maxLength: 3 },
    request: accepted,
    before: ACCEPTED,
    after: '401 invalid_api_key',
  },
  'Idempotency-Key': {
    schema: TriggerHeadersSchema.properties['idempotency-key'],
    changed: { pattern: '^two$' },
    request: accepted,
    before: ACCEPTED,
    after: '400 invalid_idempotency_key',
  },
  'the body': {
    schema: TriggerPayloadSchema,
    changed: { minProperties: 2 },
    request: accepted,
    before: ACCEPTED,
    after: '400 invalid_payload',
  },
  'an accepted run': {
    schema: AcceptedRunSchema,
    changed: { properties: { runId: AcceptedRunSchema.properties.runId }, required: ['runId'] },
    request: accepted,
    before: ACCEPTED,
    after: '202 runId',
  },
  'a health report': {
    schema: HealthReportSchema,
    changed: { properties: { version: HealthReportSchema.properties.version }, required: [] },
    request: () => ({ url: '/orc/health' }),
    before: '200 status,timestamp,version',
    after: '200 version',
  },
  'an error': {
    schema: ErrorObjectSchema,
    changed: {
      properties: { statusCode: ErrorObjectSchema.properties.statusCode },
      required: ['statusCode'],
    },
    request: () => trigger('judged', undefined),
    before: '401 missing_api_key',
    after: '401 statusCode',
  },
};

/** What an app answers that is built now. */
function answering(request: Case['request']): () => Promise<string> {
  const { app, store } = openTestApp();
  return async () => {
    const answer = await app.inject(request(await createAutomation(store, 'judged')));
    const body = answer.json();
    return `${answer.statusCode} ${body.error ?? Object.keys(body)}`;
  };
}

describe.each(Object.entries(CASES))('the schema of %s', (_, { schema, changed, request, before, after }) => {
  describe('as it is', () => {
    const answer = answering(request);
    test(`makes the answer ${before}`, async () => expect(await answer()).toBe(before));
  });

  describe('changed', () => {
    const original = { minProperties: undefined, ...schema };
    beforeAll(() => void Object.assign(schema, changed));
    afterAll(() => void Object.assign(schema, original));
    const answer = answering(request);
    test(`makes the answer ${after}`, async () => expect(await answer()).toBe(after));
  });
});
