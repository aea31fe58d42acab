import { describe, expect, test } from 'vitest';
import { compilePayloadSchema, problemOfSchema } from '../../src/core/payload-schema.ts';

const MANY_EQUAL_REFERENCES = {
  $ref: '#/$defs/d20',
  $defs: {
    d0: { type: 'object' },
    ...Object.fromEntries(
      Array.from({ length: 20 }, (_, index) => {
        const reference = { $ref: `#/$defs/d${index}` };
        return [`d${index + 1}`, { allOf: [reference, reference] }];
      }),
    ),
  },
};

describe('a schema is refused that', () => {
  test.each<[why: string, schema: unknown, problem: string]>([
    ['is no object', true, 'must be a JSON object'],
    ['has more than 64 KiB', { description: 'x'.repeat(65_536) }, 'has 65554 bytes, more than 65536'],
    [
      'is of another dialect',
      { $schema: 'http://json-schema.org/draft-07/schema#' },
      'must be of the dialect',
    ],
    [
      'its meta-schema refuses',
      { properties: { a: { type: 'text' } } },
      '/properties/a/type must be one of ["array"',
    ],
    ['has a keyword that nobody knows', { requried: ['a'] }, '/requried is not a keyword'],
    ['refers to itself', { properties: { next: { $ref: '#' } } }, '/properties/next/$ref is recursive'],
    [
      'refers to a part that refers to itself',
      { $ref: '#/$defs/node', $defs: { node: { properties: { next: { $ref: '#/$defs/node' } } } } },
      '/$defs/node/properties/next/$ref is recursive',
    ],
    ['has a dynamic reference', { $dynamicRef: '#a' }, '/$dynamicRef may be recursive'],
    ['refers to another file', { $ref: 'https://example.com/a.json' }, 'nothing is fetched'],
    ['refers to nothing', { $ref: '#/$defs/a' }, '/$ref leads nowhere'],
    ['looks ahead', { pattern: '^(?=a)' }, '/pattern is not a pattern of RE2'],
    [
      'refers back',
      { properties: { a: { pattern: '(a)\\1' } } },
      '/properties/a/pattern is not a pattern of RE2',
    ],
    [
      'has such a pattern for names',
      { patternProperties: { '(?!a)': {} } },
      '/patternProperties is not a pattern',
    ],
    ['has a huge pattern', { pattern: '([ab]{30}){30}[cd]{900}' }, '/pattern is too large'],
    [
      'wants many objects to differ',
      { uniqueItems: true, maxItems: 31 },
      '/uniqueItems needs a maxItems of at most 30',
    ],
    [
      'wants endlessly many texts to differ',
      { uniqueItems: true, items: { type: 'string' } },
      '/uniqueItems needs a maxItems of at most 30',
    ],
    ['doubles with each reference', MANY_EQUAL_REFERENCES, 'could take too long'],
    [
      'asks too much of each item',
      { items: { anyOf: Array.from({ length: 30 }, (_, index) => ({ required: [`a${index}`] })) } },
      'could take too long',
    ],
    [
      'has too many subschemas',
      {
        properties: Object.fromEntries(
          Array.from({ length: 201 }, (_, index) => [`a${index}`, { type: 'null' }]),
        ),
      },
      'has more than 200 subschemas',
    ],
    ['is nested endlessly', JSON.parse(`${'{"not":'.repeat(5000)}{}${'}'.repeat(5000)}`), 'is nested deeper'],
    [
      'names __proto__',
      JSON.parse('{"properties":{"__proto__":{"type":"null"}}}'),
      '/properties has the name __proto__',
    ],
    [
      'has identifiers inside',
      { properties: { a: { $id: 'b' } } },
      '/properties/a/$id is allowed at the top only',
    ],
  ])('%s', (_, schema, problem) => {
    expect(problemOfSchema(schema)).toContain(problem);
  });
});

describe('a schema is accepted that', () => {
  test.each<[what: string, schema: object]>([
    [
      'names its dialect and itself',
      { $schema: 'https://json-schema.org/draft/2020-12/schema', $id: 'https://a.example/b' },
    ],
    [
      'uses one part twice',
      {
        properties: { a: { $ref: '#/$defs/t' }, b: { $ref: '#/$defs/t' } },
        $defs: { t: { type: 'string' } },
      },
    ],
    [
      'has annotations, formats and names of its own',
      { title: 'x', format: 'email', examples: [1], 'x-owner': 'me' },
    ],
    ['wants a few objects to differ', { uniqueItems: true, maxItems: 30 }],
    [
      'wants many texts to differ',
      { uniqueItems: true, maxItems: 1000, items: { type: ['string', 'null'] } },
    ],
    [
      'has three kinds of items',
      { items: { oneOf: ['a', 'b', 'c'].map((kind) => ({ properties: { kind: { const: kind } } })) } },
    ],
  ])('%s', (_, schema) => {
    expect(problemOfSchema(schema)).toBeUndefined();
  });
});

describe('a payload', () => {
  const check = compilePayloadSchema({
    type: 'object',
    required: ['ref'],
    properties: {
      ref: { type: 'string', pattern: '^refs/', maxLength: 20 },
      count: { type: 'integer', minimum: 1 },
      even: { multipleOf: 2 },
      kind: { enum: ['a', 'b'] },
      mail: { format: 'email' },
      tags: { type: 'array', items: { type: ['string', 'null'] }, minItems: 1 },
      choice: { anyOf: [{ const: 1 }, { const: 2 }] },
      constructor: { type: 'string' },
    },
    additionalProperties: false,
  });

  test.each([
    ['{}', 'the object must have the property "ref" (required)'],
    ['{"ref":1}', '/ref must be of the type string (type)'],
    ['{"ref":"x"}', '/ref must match the pattern "^refs/" (pattern)'],
    [`{"ref":"refs/${'x'.repeat(20)}"}`, '/ref must have at most 20 characters (maxLength)'],
    ['{"ref":"refs/a","count":0}', '/count must be >= 1 (minimum)'],
    ['{"ref":"refs/a","even":3}', '/even must be a multiple of 2 (multipleOf)'],
    ['{"ref":"refs/a","kind":"c"}', '/kind must be one of ["a","b"] (enum)'],
    ['{"ref":"refs/a","tags":[]}', '/tags must have at least 1 items (minItems)'],
    ['{"ref":"refs/a","tags":["x",1]}', '/tags/1 must be of the type string or null (type)'],
    ['{"ref":"refs/a","choice":3}', '/choice does not fit anyOf (anyOf)'],
    [
      '{"ref":"refs/a","\\u001b[2J":1}',
      'the object must not have the property "\\u001b[2J" (additionalProperties)',
    ],
    [
      '{"ref":"refs/a","__proto__":1}',
      'the object must not have the property "__proto__" (additionalProperties)',
    ],
  ])('is refused with place and rule: %s', (payload, problem) => {
    expect(check(payload)).toBe(problem);
  });

  test.each([
    '{"ref":"refs/a"}',
    '{"ref":"refs/a","count":123456789012345678901234567890}',
    '{"ref":"refs/a","mail":"nobody"}',
  ])('is accepted: %s', (payload) => {
    expect(check(payload)).toBeUndefined();
  });

  test('is refused in a short message, however long its names are', () => {
    const long = 'é'.repeat(100_000);
    expect(check(`{"ref":"refs/a","${long}":1}`)?.length).toBeLessThan(200);
    expect(
      compilePayloadSchema({ additionalProperties: { type: 'null' } })(`{"${long}":1}`)?.length,
    ).toBeLessThan(300);
  });
});

describe('a payload whose check could take long is refused as too large', () => {
  test.each<[what: string, schema: Record<string, unknown>, payload: string]>([
    [
      'for all its items',
      { properties: { a: { items: { enum: Array.from({ length: 300 }, (_, index) => `v${index}`) } } } },
      `{"a":[${Array(100_000).fill('"v299"').join(',')}]}`,
    ],
    [
      'for a pattern that RE2 needs a thousand steps per character for',
      { properties: { a: { pattern: '[ab]*a[ab]{200}[cd]' } } },
      `{"a":"cd${'abbabaab'.repeat(10_000)}"}`,
    ],
    [
      'for a pattern, in many short texts',
      { patternProperties: { '[ab]*a[ab]{200}[cd]': {} } },
      `{${Array.from({ length: 20_000 }, (_, index) => `"${index}":0`).join(',')}}`,
    ],
    [
      'for values that are nested too deeply to be compared',
      { properties: { a: { uniqueItems: true, maxItems: 2 } } },
      `{"a":[${Array(2)
        .fill('['.repeat(50_000) + ']'.repeat(50_000))
        .join(',')}]}`,
    ],
  ])('%s', (_, schema, payload) => {
    expect(compilePayloadSchema(schema)(payload)).toContain('too large to be checked');
  });

  test('and the next one is judged as ever', () => {
    const check = compilePayloadSchema({ properties: { a: { pattern: '^[ab]*a[ab]{200}[cd]' } } });
    expect(check(`{"a":"cd${'abbabaab'.repeat(10_000)}"}`)).toContain('too large');
    expect(check('{"a":"x"}')).toContain('/a must match the pattern');
    expect(check(`{"a":"${'a'.repeat(201)}d"}`)).toBeUndefined();
  });

  test('30,000 objects are refused by their number before they are compared', () => {
    const check = compilePayloadSchema({ properties: { a: { uniqueItems: true, maxItems: 30 } } });
    const objects = Array.from({ length: 30_000 }, (_, id) => ({ id }));
    expect(check(JSON.stringify({ a: objects }))).toBe('/a must have at most 30 items (maxItems)');
  });
});
