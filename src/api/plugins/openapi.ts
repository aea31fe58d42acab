import { fastifySwagger } from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import {
  AcceptedRunSchema,
  ErrorObjectSchema,
  HealthReportSchema,
  TriggerPayloadSchema,
  UnhealthyReportSchema,
} from '../schemas.ts';

/** Version of the description, not of the service (spec.md, "Versioning"). */
const DESCRIPTION_VERSION = '1.0.0';

/** Stands for the origin in the generated document: an origin is not known before a request asks for the document. */
const ANY_ORIGIN = '/';

interface Operation {
  requestBody?: { required: boolean; description?: string };
}

/** Makes the OpenAPI document out of the routes' own schemas; `app.swagger()` returns it. */
export const openapiPlugin = fastifyPlugin(
  async (app: FastifyInstance, { bodyLimitBytes }: { bodyLimitBytes: number }) => {
    const schemas = [
      HealthReportSchema,
      UnhealthyReportSchema,
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
            'Starts runs of pre-configured automations, and reports whether the service is up. These two operations are the whole public HTTP API. Automations and their keys are created inside an invited workspace.',
          license: { name: 'MIT', identifier: 'MIT' },
        },
        servers: [{ url: ANY_ORIGIN }],
        security: [],
        tags: [
          { name: 'Automations', description: 'Start runs.' },
          { name: 'Health', description: 'Watch the service.' },
        ],
        components: {
          securitySchemes: {
            apiKey: {
              type: 'apiKey',
              in: 'header',
              name: 'x-api-key',
              description:
                "The automation's own key. It is shown once, when the automation is created inside an invited workspace; there is no public way to obtain one.",
            },
          },
        },
        externalDocs: { url: '/llms.txt', description: 'Overview of the service for AI agents' },
      },
      refResolver: {
        buildLocalReference: (json, _baseUri, _fragment, index) => String(json['$id'] ?? `def-${index}`),
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
          }
        }
        return openapiObject;
      },
    });
  },
  { name: 'openapi', fastify: '5.x' },
);

/** The document as JSON text with `origin` as its server; without one, relative to wherever it is served. */
export function openapiText(app: FastifyInstance, origin: string = ANY_ORIGIN): string {
  const document = app.swagger();
  return `${JSON.stringify({ ...document, servers: [{ url: origin }] }, null, 2)}\n`;
}
