import type { FastifyInstance } from 'fastify';
import type { ConsoleDependencies } from '../dependencies.ts';
import { render } from '../render.tsx';
import { Audit } from '../views/audit.tsx';

const ENTRIES_PER_PAGE = 50;

/** Of a Redis stream. */
const ENTRY_ID = /^\d{1,16}-\d{1,10}$/;

export async function auditRoutes(app: FastifyInstance, { store }: ConsoleDependencies) {
  app.get<{ Querystring: { before?: string | string[] } }>('/audit', async ({ query }, reply) => {
    const before = typeof query.before === 'string' && ENTRY_ID.test(query.before) ? query.before : undefined;
    const found = await store.audit.list({ limit: ENTRIES_PER_PAGE + 1, before });
    const entries = found.slice(0, ENTRIES_PER_PAGE);
    const older = found.length > entries.length ? `/audit?before=${entries.at(-1)?.id}` : undefined;
    return render(
      reply,
      { title: 'Audit', section: 'audit' },
      <Audit entries={entries} older={older} isLatest={before === undefined} />,
    );
  });
}
