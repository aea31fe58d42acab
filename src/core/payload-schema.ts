import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import { depthOf } from './depth-of.ts';
import {
  compilePattern,
  costOfSchema,
  isObject,
  MAX_SCHEMA_DEPTH,
  type PayloadSchema,
  SchemaProblem,
  withoutName,
} from './payload-schema-cost.ts';
import { quoted } from './quoted.ts';

/** The only dialect: JSON Schema 2020-12. */
const DIALECT = 'https://json-schema.org/draft/2020-12/schema';

/** Largest schema, in bytes of its JSON text. */
const MAX_SCHEMA_BYTES = 65_536;

/** How long the check of one payload may hold a process up, in nanoseconds of a slow core. */
const BUDGET_NS = 100_000_000;

/** Every schema can check payloads of so many bytes within the budget; a simple one checks some megabytes. */
const MIN_CHECKED_BYTES = 65_536;

/** What RE2 takes at worst per character and instruction of a pattern's program, in nanoseconds. */
const PATTERN_STEP_NS = 100;

/** How much of a value a message repeats, in characters. */
const MAX_QUOTED = 80;
const MAX_POINTER = 200;

/** Says why a payload, the JSON text of an object, does not fit a schema; undefined if it fits. */
export type PayloadCheck = (payload: string) => string | undefined;

/**
 * What is wrong with a schema that an operator sets. A schema without a problem checks every payload in a bounded time.
 *
 * @returns a sentence without its full stop, with a JSON Pointer (RFC 6901) to the place; undefined if nothing is wrong
 */
export function problemOfSchema(schema: unknown): string | undefined {
  if (!isObject(schema)) return 'must be a JSON object';
  if (depthOf(schema) > MAX_SCHEMA_DEPTH * 3) return `is nested deeper than ${MAX_SCHEMA_DEPTH} levels`;
  const bytes = Buffer.byteLength(JSON.stringify(schema));
  if (bytes > MAX_SCHEMA_BYTES) return `has ${bytes} bytes, more than ${MAX_SCHEMA_BYTES}`;
  const { $schema = DIALECT } = schema;
  if (String($schema).replace(/#$/, '') !== DIALECT) return `must be of the dialect ${DIALECT}, or name none`;
  try {
    const judge = new Ajv2020({ strict: false, logger: false, validateFormats: false });
    if (!judge.validateSchema(withoutName(schema))) {
      const [error] = judge.errors ?? [];
      return error ? `${placeOf(error)} ${ruleOf(error)}` : 'is not a JSON Schema';
    }
    compilePayloadSchema(schema);
    return undefined;
  } catch (error) {
    if (error instanceof SchemaProblem) return error.message;
    return `cannot be compiled: ${quoted((error as Error).message, MAX_POINTER)}`;
  }
}

/**
 * Compiles a schema. `format` and the `content…` keywords are annotations, as JSON Schema 2020-12 has it by default: they
 * refuse nothing.
 *
 * @throws SchemaProblem for a schema whose checks are not bounded
 */
export function compilePayloadSchema(schema: PayloadSchema): PayloadCheck {
  const { once, perByte } = costOfSchema(schema);
  if (once + perByte * MIN_CHECKED_BYTES > BUDGET_NS) {
    throw new SchemaProblem(
      `could take too long to check a payload of ${MIN_CHECKED_BYTES} bytes; use fewer subschemas inside of items, additionalProperties, allOf, anyOf and oneOf, and fewer references to the same place`,
      { pointer: '' },
    );
  }
  const patterns = new PatternBudget();
  const ajv = new Ajv2020({
    // costOfSchema has judged the keywords, and the meta-schema the rest, when the schema was set.
    strict: false,
    meta: false,
    validateSchema: false,
    validateFormats: false,
    logger: false,
    messages: false,
    inlineRefs: false,
    // Without it, every payload has the property "constructor".
    ownProperties: true,
    code: { regExp: patterns.regExp, optimize: false },
  });
  const validate = ajv.compile(withoutName(schema));
  return (payload) => {
    const left = BUDGET_NS - once - perByte * Buffer.byteLength(payload);
    if (left < 0) return TOO_LARGE;
    patterns.start(left);
    try {
      return validate(JSON.parse(payload)) ? undefined : violationOf(validate);
    } catch (error) {
      // Only `uniqueItems` compares values that may be nested deeper than the stack.
      if (error instanceof PatternBudgetError || error instanceof RangeError) return TOO_LARGE;
      throw error;
    }
  };
}

const TOO_LARGE = 'the payload is too large to be checked in time; send less data, or a link to it';

class PatternBudgetError extends Error {}

/** Limits what all patterns together cost during one check: RE2 takes a bounded time per character and instruction. */
class PatternBudget {
  #steps = 0;

  start(budgetNs: number): void {
    this.#steps = budgetNs / PATTERN_STEP_NS;
  }

  /** Makes the matchers that Ajv asks for. */
  readonly regExp = Object.assign(
    (pattern: string) => {
      const program = compilePattern(pattern);
      const size = program.programSize();
      return {
        test: (text: string) => {
          this.#steps -= text.length * size;
          if (this.#steps < 0) throw new PatternBudgetError();
          return program.test(text);
        },
      };
    },
    // Ajv writes it into code that is saved; none is here.
    { code: 'RE2' },
  );
}

/** @param validate one that has just refused a payload */
function violationOf({ errors }: ValidateFunction): string {
  // Where alternatives have failed, the last error is that of the keyword with the alternatives.
  const error = errors?.at(-1);
  return error ? `${placeOf(error)} ${ruleOf(error)} (${error.keyword})` : 'it is refused';
}

function placeOf({ instancePath }: ErrorObject): string {
  return instancePath === '' ? 'the object' : quoted(instancePath, MAX_POINTER).slice(1, -1);
}

function ruleOf({ keyword, params, message }: ErrorObject): string {
  const value = (name: string) => quoted(textOf(params[name]), MAX_QUOTED);
  const json = (name: string) => quoted(JSON.stringify(params[name]), MAX_POINTER, false);
  switch (keyword) {
    case 'type':
      return `must be of the type ${[params['type']].flat().join(' or ').replaceAll(',', ' or ')}`;
    case 'required':
    case 'dependentRequired':
      return `must have the property ${value('missingProperty')}`;
    case 'additionalProperties':
      return `must not have the property ${value('additionalProperty')}`;
    case 'unevaluatedProperties':
      return `must not have the property ${value('unevaluatedProperty')}`;
    case 'propertyNames':
      return `must not have a property of the name ${value('propertyName')}`;
    case 'enum':
      return `must be one of ${json('allowedValues')}`;
    case 'const':
      return `must be ${json('allowedValue')}`;
    case 'pattern':
      return `must match the pattern ${value('pattern')}`;
    case 'multipleOf':
      return `must be a multiple of ${params['multipleOf']}`;
    case 'maximum':
    case 'minimum':
    case 'exclusiveMaximum':
    case 'exclusiveMinimum':
      return `must be ${params['comparison']} ${params['limit']}`;
    case 'minLength':
    case 'maxLength':
      return `must have ${atMostOrLeast(keyword)} ${params['limit']} characters`;
    case 'minItems':
    case 'maxItems':
      return `must have ${atMostOrLeast(keyword)} ${params['limit']} items`;
    case 'minProperties':
    case 'maxProperties':
      return `must have ${atMostOrLeast(keyword)} ${params['limit']} properties`;
    case 'uniqueItems':
      return 'must not have two equal items';
    case 'false schema':
      return 'must not be there';
    default:
      return message ?? `does not fit ${keyword}`;
  }
}

function atMostOrLeast(keyword: string): string {
  return keyword.startsWith('max') ? 'at most' : 'at least';
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
