import { fastifySwagger } from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import {
  AcceptedRunSchema,
  ErrorObjectSchema,
  HealthReportSchema,
  HealthStatusSchema,
  RunEndReasonSchema,
  RunOutcomeSchema,
  RunStatusSchema,
  TriggerPayloadSchema,
  UnhealthyReportSchema,
  UnhealthyStatusSchema,
} from '../schemas.ts';

/** Version of the description, not of the service (spec.md, "Versioning"). */
const DESCRIPTION_VERSION = '1.0.0';

/** Stands for the origin in the generated document: an origin is not known before a request asks for the document. */
const ANY_ORIGIN = '/';

interface Operation {
  requestBody?: {
    required: boolean;
    description?: string;
    content: { 'application/json': { examples?: Record<string, { summary: string; value: object }> } };
  };
}

const PAYLOAD_EXAMPLES = {
  deploy: { summary: 'A pipeline hands over what it has built', value: { ref: 'main', commit: '5c0ffee' } },
  task: {
    summary: 'An agent hands over a task',
    value: { task: 'Summarise the open incidents', notify: ['ops@example.com'] },
  },
  empty: { summary: 'The automation needs nothing to be told', value: {} },
};

/** Makes the OpenAPI document out of the routes' own schemas; `app.swagger()` returns it. */
export const openapiPlugin = fastifyPlugin(
  async (app: FastifyInstance, { bodyLimitBytes }: { bodyLimitBytes: number }) => {
    const schemas = [
      HealthStatusSchema,
      HealthReportSchema,
      UnhealthyStatusSchema,
      UnhealthyReportSchema,
      RunStatusSchema,
      RunEndReasonSchema,
      RunOutcomeSchema,
      AcceptedRunSchema,
      TriggerPayloadSchema,
      ErrorObjectSchema,
    ];
    for (const schema of schemas) app.addSchema(schema);

    await app.register(fastifySwagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'orc: automation trigger and health API',
          version: DESCRIPTION_VERSION,
          description:
            'Starts runs of pre-configured automations, and reports whether the service is up. These two operations are the whole public HTTP API. Automations, their slugs and their API keys are created inside an invited workspace; no operation creates, lists or shows them. Every error is a JSON object whose `error` is a stable identifier and whose `hint` says what to do next; /docs/errors explains each.',
          contact: { name: 'Whoever operates this service and has invited you' },
          license: { name: 'MIT', identifier: 'MIT' },
        },
        servers: [{ url: ANY_ORIGIN }],
        security: [],
        tags: [
          { name: 'Automations', description: 'Start runs, and learn how they stand.' },
          { name: 'Health', description: 'Watch the service.' },
        ],
        components: {
          securitySchemes: {
            apiKey: {
              type: 'apiKey',
              in: 'header',
              name: 'x-api-key',
              description:
                "The automation's own key: `orc_` and 49 letters and digits. A person inside an invited workspace gets it, once, when the automation is created, and hands it to you together with the slug; there is no public way to obtain one. A lost key is replaced with `orc automations rotate-key <slug>`. Take it from a secret store or an environment variable, and never print it. See /docs#authentication.",
            },
          },
        },
      },
      refResolver: {
        buildLocalReference: (json, _baseUri, _fragment, index) => String(json['$id'] ?? `def-${index}`),
      },
      // A body whose schema has a name is described by that name.
      transform: ({ schema, url }) => {
        const { $id } = (schema?.body ?? {}) as { $id?: string };
        return { schema: $id === undefined ? schema : { ...schema, body: { $ref: `${$id}#` } }, url };
      },
      hideUntagged: true,
      exposeHeadRoutes: false,
      transformObject: (document) => {
        if (!('openapiObject' in document)) return document.swaggerObject;
        const { openapiObject } = document;
        for (const path of Object.values(openapiObject.paths ?? {})) {
          const { requestBody } = (path?.post ?? {}) as Operation;
          // The generator takes every described body for a required one.
          if (requestBody) {
            requestBody.required = false;
            requestBody.description = `The trigger payload, at most ${bodyLimitBytes} bytes. No body counts as \`{}\`.`;
            requestBody.content['application/json'].examples = PAYLOAD_EXAMPLES;
          }
        }
        return openapiObject;
      },
    });
  },
  { name: 'openapi', fastify: '5.x' },
);

/**
 * The document as JSON text with `origin` as its server. Without one it is relative to wherever it is served, and links
 * to no documentation, which takes an absolute URL.
 */
export function openapiText(app: FastifyInstance, origin: string = ANY_ORIGIN): string {
  const document = { ...app.swagger(), servers: [{ url: origin }] };
  if (origin !== ANY_ORIGIN) {
    document.externalDocs = { url: `${origin}/docs`, description: 'How to use both operations well' };
  }
  return `${JSON.stringify(document, null, 2)}\n`;
}
