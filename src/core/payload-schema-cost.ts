import { RE2JS } from 're2js';
import { quoted } from './quoted.ts';

/** A JSON Schema for payloads. */
export type PayloadSchema = Readonly<Record<string, unknown>>;

/** A part of one. */
type JsonSchema = boolean | PayloadSchema;

/** Most subschemas of one schema: compiling it holds the API process up for that long only. */
const MAX_SUBSCHEMAS = 200;

/** Deepest nesting of subschemas, references included. */
export const MAX_SCHEMA_DEPTH = 32;

/** Largest `maxItems` beside `uniqueItems`: of items that have a scalar type, and of others, each of which is compared with each. */
const MAX_UNIQUE_SCALARS = 1000;
const MAX_UNIQUE_ITEMS = 30;

/** Largest program that RE2 may make of a pattern, in instructions. */
const MAX_PATTERN_SIZE = 1000;

/**
 * What the check of a payload costs at most: `once` for the payload, and `perByte` for each of its bytes. In nanoseconds of a
 * slow core; docs/performance.md says what was measured.
 */
export interface SchemaCost {
  once: number;
  perByte: number;
}

/** Weights in nanoseconds: a keyword, a name or value to look up, a key in a loop over all keys, a character, a `$ref`, a branch that fails. */
const KEYWORD = 12;
const NAME = 10;
const KEY = 180;
const CHARACTER = 3;
const REFERENCE = 40;
const FAILED_BRANCH = 150;
/** A byte of two values that are compared with each other. */
const COMPARED_BYTE = 8;

/** Fewest bytes of a payload per item of an array (`0,`) and per property of an object (`"a":0,`). */
const ITEM_BYTES = 2;
const PROPERTY_BYTES = 6;

/** One subschema, a list of subschemas, a map of them. */
const ONE = ['items', 'contains', 'additionalProperties', 'propertyNames', 'if', 'then', 'else', 'not'];
const UNEVALUATED = ['unevaluatedItems', 'unevaluatedProperties'];
const LISTS = ['prefixItems', 'allOf', 'anyOf', 'oneOf'];
const MAPS = ['properties', 'patternProperties', 'dependentSchemas', '$defs'];
const ASSERTIONS = [
  ...['type', 'const', 'enum', 'multipleOf', 'maximum', 'exclusiveMaximum', 'minimum', 'exclusiveMinimum'],
  ...[
    'maxLength',
    'minLength',
    'pattern',
    'maxItems',
    'minItems',
    'uniqueItems',
    'maxContains',
    'minContains',
  ],
  ...['maxProperties', 'minProperties', 'required', 'dependentRequired'],
];
const ANNOTATIONS = [
  ...['$comment', 'title', 'description', 'default', 'deprecated', 'readOnly', 'writeOnly', 'examples'],
  ...['format', 'contentEncoding', 'contentMediaType', 'contentSchema'],
];
const KNOWN = new Set(['$ref', ...ONE, ...UNEVALUATED, ...LISTS, ...MAPS, ...ASSERTIONS, ...ANNOTATIONS]);

/** Keywords of JSON Schema 2020-12 that are refused, and what to do instead. */
const REFUSED: Readonly<Record<string, string>> = {
  $dynamicRef: 'may be recursive; use $ref',
  $dynamicAnchor: 'is for $dynamicRef, which may be recursive; use $ref',
  $anchor: 'is not supported; refer to the place itself, such as #/$defs/address',
  $id: 'is allowed at the top only',
  $schema: 'is allowed at the top only',
  $vocabulary: 'is for meta-schemas only',
};

const RECURSIVE = 'is recursive, so its checks cannot be bounded';

const SCALARS = ['string', 'number', 'integer', 'boolean', 'null'];

/** What is wrong with a schema. */
export class SchemaProblem extends Error {
  override name = 'SchemaProblem';

  /** @param pointer where, as a JSON Pointer (RFC 6901) */
  constructor(problem: string, { pointer, ...options }: ErrorOptions & { pointer: string }) {
    super(pointer === '' ? problem : `${quoted(pointer, 200).slice(1, -1)} ${problem}`, options);
  }
}

/**
 * Bounds what the check of any payload costs. A byte of a payload belongs to one value per level of nesting, and each value is
 * checked by the subschemas that apply to it; without recursion there are so many of those, whatever the payload is. Patterns
 * are not counted: what they cost is limited when they are matched.
 *
 * @param root a schema that its meta-schema holds for
 * @throws SchemaProblem for what cannot be bounded, and for keywords that JSON Schema 2020-12 does not know
 */
export function costOfSchema(root: PayloadSchema): SchemaCost {
  const known = new Map<JsonSchema, SchemaCost>();
  const open = new Set<JsonSchema>();

  const costOf = (schema: JsonSchema, pointer: string): SchemaCost => {
    if (typeof schema === 'boolean') return { once: KEYWORD, perByte: 0 };
    if (!isObject(schema)) throw new SchemaProblem('must be a schema: an object, true or false', { pointer });
    const cost = known.get(schema);
    if (cost) return cost;
    if (open.has(schema)) throw new SchemaProblem(RECURSIVE, { pointer });
    if (open.size >= MAX_SCHEMA_DEPTH) {
      throw new SchemaProblem(`is nested deeper than ${MAX_SCHEMA_DEPTH} levels`, { pointer });
    }
    if (known.size >= MAX_SUBSCHEMAS) {
      throw new SchemaProblem(`has more than ${MAX_SUBSCHEMAS} subschemas`, { pointer: '' });
    }
    open.add(schema);
    const found = sumUp(schema, pointer);
    open.delete(schema);
    known.set(schema, found);
    return found;
  };

  const sumUp = (schema: PayloadSchema, pointer: string): SchemaCost => {
    checkKeywords(schema, pointer);
    const one = (keyword: string): SchemaCost[] =>
      schema[keyword] === undefined ? [] : [costOf(schema[keyword] as JsonSchema, `${pointer}/${keyword}`)];
    const all = (keyword: string): SchemaCost[] =>
      Object.entries((schema[keyword] ?? {}) as Record<string, JsonSchema>).map(([name, part]) =>
        costOf(part, `${pointer}/${keyword}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`),
      );
    all('$defs');
    const target = schema['$ref'];
    const branches = [...all('anyOf'), ...all('oneOf')];
    const inPlace = [
      ...(target === undefined ? [] : [costOf(resolve(root, target, pointer), `${pointer}/$ref`)]),
      ...[...all('allOf'), ...branches, ...one('not'), ...one('if'), ...one('then'), ...one('else')],
      ...all('dependentSchemas'),
    ];
    const ofItems = sum(one('items'), one('contains'), one('unevaluatedItems'), [
      greatest(all('prefixItems')),
    ]);
    const named = all('properties');
    const loops = [one('additionalProperties'), one('propertyNames'), all('patternProperties')];
    const ofProperties = sum(...loops, one('unevaluatedProperties'), [greatest(named)]);
    const loopCount =
      loops.flat().length + UNEVALUATED.filter((each) => each in schema).length * (1 + inPlace.length);
    const perProperty =
      ofProperties.once + (loopCount + countOf(schema, 'minProperties', 'maxProperties')) * KEY;

    const lookups =
      named.length +
      nodesOf(schema['required']) +
      nodesOf(schema['dependentRequired']) +
      nodesOf(schema['enum']);
    const { once, perByte } = sum(inPlace);
    const own = Object.keys(schema).length * KEYWORD + (lookups + nodesOf(schema['const'])) * NAME;
    return {
      once: own + once + branches.length * FAILED_BRANCH + countOf(schema, '$ref') * REFERENCE,
      perByte:
        perByte +
        countOf(schema, 'minLength', 'maxLength') * CHARACTER +
        costOfUniqueItems(schema, pointer) +
        Math.max(
          ofItems.once / ITEM_BYTES + ofItems.perByte,
          perProperty / PROPERTY_BYTES + ofProperties.perByte,
        ),
    };
  };

  return costOf(withoutName(root), '');
}

/** A schema without its dialect and its identifier, which are for its top only. */
export function withoutName({ $id: _, $schema: __, ...schema }: PayloadSchema): PayloadSchema {
  return schema;
}

/** @throws SchemaProblem */
function checkKeywords(schema: PayloadSchema, pointer: string): void {
  for (const keyword of Object.keys(schema)) {
    const place = `${pointer}/${keyword}`;
    const refused = Object.hasOwn(REFUSED, keyword) ? REFUSED[keyword] : undefined;
    if (refused !== undefined) throw new SchemaProblem(refused, { pointer: place });
    if (!KNOWN.has(keyword) && !keyword.startsWith('x-')) {
      throw new SchemaProblem('is not a keyword of JSON Schema 2020-12; names of your own begin with x-', {
        pointer: place,
      });
    }
  }
  if (schema['pattern'] !== undefined) checkPattern(String(schema['pattern']), `${pointer}/pattern`);
  for (const pattern of Object.keys(schema['patternProperties'] ?? {})) {
    checkPattern(pattern, `${pointer}/patternProperties`);
  }
  // Ajv ignores such a name.
  for (const keyword of ['properties', 'patternProperties', 'dependentSchemas', 'dependentRequired']) {
    if (Object.hasOwn((schema[keyword] ?? {}) as object, '__proto__')) {
      throw new SchemaProblem('has the name __proto__, which cannot be checked', {
        pointer: `${pointer}/${keyword}`,
      });
    }
  }
}

/** The program of a pattern. Patterns are RE2's, whose matching takes linear time, with JavaScript's escapes. */
export function compilePattern(pattern: string): RE2JS {
  return RE2JS.compile(RE2JS.translateRegExp(pattern));
}

function checkPattern(pattern: string, pointer: string): void {
  let size: number;
  try {
    size = compilePattern(pattern).programSize();
  } catch (cause) {
    const reason = (cause as Error).message.replace(/^error parsing regexp: /, '');
    throw new SchemaProblem(
      `is not a pattern of RE2, which has no lookaround and no back-references (github.com/google/re2/wiki/Syntax): ${reason}`,
      { pointer, cause },
    );
  }
  if (size > MAX_PATTERN_SIZE)
    throw new SchemaProblem('is too large a pattern; use maxLength for lengths', { pointer });
}

/** Nanoseconds per byte. */
function costOfUniqueItems(schema: PayloadSchema, pointer: string): number {
  if (schema['uniqueItems'] !== true) return 0;
  const items = schema['items'];
  const types = isObject(items) && items['type'] !== undefined ? [items['type']].flat() : [];
  const isScalar = types.length > 0 && types.every((type) => SCALARS.includes(String(type)));
  const most = isScalar ? MAX_UNIQUE_SCALARS : MAX_UNIQUE_ITEMS;
  const maxItems = schema['maxItems'];
  if (typeof maxItems === 'number' && maxItems <= most) return isScalar ? KEY : maxItems * COMPARED_BYTE;
  throw new SchemaProblem(
    `needs a maxItems of at most ${MAX_UNIQUE_ITEMS} beside it, or of at most ${MAX_UNIQUE_SCALARS} where the type of items is string, number, integer, boolean or null`,
    { pointer: `${pointer}/uniqueItems` },
  );
}

/** @param reference a `$ref`: a JSON Pointer within the same schema, as a URI fragment */
function resolve(root: PayloadSchema, reference: unknown, pointer: string): JsonSchema {
  const place = `${pointer}/$ref`;
  if (typeof reference !== 'string' || !/^#(\/|$)/.test(reference)) {
    throw new SchemaProblem(
      'must lead to a place in the same schema, such as #/$defs/address; nothing is fetched',
      { pointer: place },
    );
  }
  let found: unknown = root;
  for (const name of reference.slice(1).split('/').slice(1)) {
    const key = unescaped(name);
    found =
      typeof found === 'object' && found !== null && Object.hasOwn(found, key)
        ? (found as Record<string, unknown>)[key]
        : undefined;
  }
  if (reference === '#') throw new SchemaProblem(RECURSIVE, { pointer: place });
  if (found === undefined) throw new SchemaProblem('leads nowhere', { pointer: place });
  return found as JsonSchema;
}

function unescaped(name: string): string {
  try {
    return decodeURIComponent(name).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return name;
  }
}

export function isObject(value: unknown): value is PayloadSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function countOf(schema: object, ...keywords: string[]): number {
  return keywords.filter((keyword) => keyword in schema).length;
}

/** How many values a JSON value consists of; 0 if there is none. */
function nodesOf(value: unknown): number {
  if (value === undefined) return 0;
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce((nodes: number, each) => nodes + nodesOf(each), 1);
}

function sum(...lists: SchemaCost[][]): SchemaCost {
  const costs = lists.flat();
  return {
    once: costs.reduce((total, { once }) => total + once, 0),
    perByte: costs.reduce((total, { perByte }) => total + perByte, 0),
  };
}

function greatest(costs: SchemaCost[]): SchemaCost {
  return {
    once: Math.max(0, ...costs.map(({ once }) => once)),
    perByte: Math.max(0, ...costs.map(({ perByte }) => perByte)),
  };
}
