import type { FastifyInstance } from 'fastify';
import { readAssets } from '../asset-files.ts';

/** What the pages load, for everybody: the login needs it, too. Its name changes with its content. */
export async function assetRoutes(app: FastifyInstance) {
  for (const [path, { type, text }] of Object.entries(readAssets().files)) {
    app.get(path, async (_request, reply) =>
      reply
        .header('cache-control', 'public, max-age=31536000, immutable')
        .type(`${type}; charset=utf-8`)
        .send(text),
    );
  }
}
