import type { FastifyInstance } from 'fastify';
import { llmsTxt } from '../../pages/llms-txt.ts';
import { originOf } from '../origin.ts';
import { openapiText } from '../plugins/openapi.ts';

/** `GET /openapi.json` and `GET /llms.txt`: what programs and AI agents read first. */
export async function machineReadableRoutes(app: FastifyInstance, { publicUrl }: { publicUrl?: string }) {
  app.get('/openapi.json', async (request, reply) =>
    reply.type('application/json; charset=utf-8').send(openapiText(app, originOf(request, publicUrl))),
  );

  app.get('/llms.txt', async (request, reply) =>
    reply.type('text/plain; charset=utf-8').send(llmsTxt(originOf(request, publicUrl))),
  );
}
