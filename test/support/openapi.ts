import { fastify } from 'fastify';

export interface OpenApiDocument {
  openapi: string;
  info: { version: string };
  servers: { url: string }[];
  security: Record<string, string[]>[];
  paths: Record<string, Record<string, OpenApiOperation>>;
  components: {
    schemas: Record<string, object>;
    securitySchemes: Record<string, { type: string; in: string; name: string }>;
  };
}

export interface OpenApiOperation {
  operationId: string;
  security?: Record<string, string[]>[];
  parameters?: {
    name: string;
    in: string;
    required: boolean;
    schema: { pattern: string; maxLength: number };
  }[];
  requestBody?: { required: boolean; description: string; content: Record<string, OpenApiContent> };
  responses: Record<string, OpenApiResponse>;
}

export interface OpenApiResponse {
  description: string;
  headers: Record<string, { schema: object; description: string }>;
  content: Record<string, OpenApiContent>;
}

interface OpenApiContent {
  schema: { $ref: string };
  examples?: Record<string, { value: unknown }>;
}

/**
 * Checks values against the schemas of a document, without coercing or adding anything. Returns what is wrong with a
 * value, or nothing. Fastify's own validator does it, so that there is no second one to keep up to date.
 */
export async function schemaChecker(document: OpenApiDocument) {
  const ajv = {
    customOptions: { coerceTypes: false, removeAdditional: false, useDefaults: false, strict: false },
  };
  const app = fastify({ ajv });
  app.post('/', { schema: { body: {} } }, async () => undefined);
  await app.ready();
  const compile = app.validatorCompiler;
  if (!compile) throw new Error('Fastify has no validator');
  type Validate = { (data: unknown): boolean; errors?: object[] };
  const compiled = new Map<string, Validate>();
  return (reference: string, value: unknown): string | undefined => {
    let validate = compiled.get(reference);
    if (!validate) {
      const schema = { $ref: reference, components: document.components };
      validate = compile({ schema, method: 'POST', url: '/' }) as Validate;
      compiled.set(reference, validate);
    }
    return validate(value) ? undefined : JSON.stringify(validate.errors);
  };
}
