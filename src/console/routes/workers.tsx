import type { FastifyInstance } from 'fastify';
import type { PageDependencies } from '../dependencies.ts';
import { render } from '../render.tsx';
import { Workers } from '../views/workers.tsx';

/** Executing runs shown. */
const MAX_RUNS = 500;

export async function workersRoutes(app: FastifyInstance, { store }: PageDependencies) {
  app.get('/workers', async (_request, reply) => {
    const [workers, { count, runs }] = await Promise.all([
      store.workers.list(),
      store.runs.executing(MAX_RUNS),
    ]);
    return render(
      reply,
      { title: 'Workers', section: 'workers' },
      <Workers workers={workers} count={count} runs={runs} />,
    );
  });
}
