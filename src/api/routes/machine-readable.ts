import type { FastifyInstance } from 'fastify';
import { llmsTxt } from '../../pages/llms-txt.ts';
import { oncePerOrigin, originOf } from '../origin.ts';
import { openapiText } from '../plugins/openapi.ts';

/** `GET /openapi.json` and `GET /llms.txt`: what programs and AI agents read first. */
export async function machineReadableRoutes(app: FastifyInstance, { publicUrl }: { publicUrl?: string }) {
  const openapi = oncePerOrigin((origin) => openapiText(app, origin));
  const overview = oncePerOrigin(llmsTxt);

  app.get('/openapi.json', async (request, reply) =>
    reply.type('application/json; charset=utf-8').send(openapi(originOf(request, publicUrl))),
  );

  app.get('/llms.txt', async (request, reply) =>
    reply.type('text/plain; charset=utf-8').send(overview(originOf(request, publicUrl))),
  );
}
