import type { FastifyInstance } from 'fastify';
import { type Site, withOrigin } from '../../pages/site.ts';
import { documentOf, sendDocument } from '../documents.ts';
import { oncePerOrigin, originOf } from '../origin.ts';
import { openapiText } from '../plugins/openapi.ts';

interface MachineReadableOptions {
  site: Site;
  publicUrl?: string;
}

/** `GET /openapi.json`, `/llms.txt` and `/llms-full.txt`: what programs and AI agents read first. */
export async function machineReadableRoutes(
  app: FastifyInstance,
  { site, publicUrl }: MachineReadableOptions,
) {
  const serve = (path: string, type: string, render: (origin: string) => string) => {
    const document = oncePerOrigin((origin) => documentOf(render(origin)));
    app.get(path, async (request, reply) =>
      sendDocument(request, reply, type, document(originOf(request, publicUrl))),
    );
  };
  serve('/openapi.json', 'application/json', (origin) => openapiText(app, origin));
  for (const [path, text] of Object.entries(site.texts)) {
    serve(path, 'text/plain', (origin) => withOrigin(text, origin));
  }
}
