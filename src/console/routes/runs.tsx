import type { FastifyInstance, FastifyRequest } from 'fastify';
import { InputError } from '../../core/input-error.ts';
import type { Run } from '../../core/run.ts';
import { acceptedAtOf } from '../../store/run-id.ts';
import { ConsoleError } from '../console-error.ts';
import type { ConsoleDependencies } from '../dependencies.ts';
import { render } from '../render.tsx';
import { cursorText, type RunQuery, readRunQuery, runFilterOf } from '../run-query.ts';
import { RunsView } from '../views/runs.tsx';

/** Runs on one page. */
const PAGE_SIZE = 50;

const RUN_ID = /^run_[0-9a-f-]{36}$/;

/** The list of runs. */
export async function runsRoutes(app: FastifyInstance, { store }: ConsoleDependencies) {
  app.get('/runs', async (request, reply) => {
    const query = queryOf(request);
    const { filter, after } = understood(query, PAGE_SIZE);
    const { runs, next } = await store.runs.page(filter, after);
    return render(
      reply,
      { title: 'Runs', section: 'runs' },
      <RunsView query={query} runs={runs} next={next && cursorText(next)} />,
    );
  });

  // For the script, which offers to load the list again: how many runs are newer than those that it shows.
  app.get('/runs/newer', async (request, reply) => {
    const { filter } = understood({ ...queryOf(request), after: '' }, PAGE_SIZE);
    const newest = new URLSearchParams(request.url.split('?')[1]).get('newest') ?? '';
    // What is newer was accepted or, in the list of failed runs, has ended no earlier: nothing else is read.
    const since = sinceOf(newest, filter.failed === true);
    if (since && since > (filter.since ?? 0)) filter.since = since;
    const { runs } = await store.runs.page(filter);
    const isNewer = ({ id, endedAt }: Run) =>
      filter.failed ? (endedAt?.getTime() ?? 0) > Number(newest) : id > newest;
    return reply.send({ count: runs.filter(isNewer).length, atLeast: PAGE_SIZE });
  });
}

function sinceOf(newest: string, isByEnd: boolean): Date | undefined {
  if (isByEnd) return /^\d{1,15}$/.test(newest) ? new Date(Number(newest)) : undefined;
  return RUN_ID.test(newest) ? acceptedAtOf(newest) : undefined;
}

function queryOf({ url }: FastifyRequest): RunQuery {
  return readRunQuery(new URLSearchParams(url.split('?')[1]));
}

function understood(query: RunQuery, limit: number) {
  try {
    return runFilterOf(query, limit);
  } catch (error) {
    throw error instanceof InputError ? notUnderstood(error) : error;
  }
}

function notUnderstood(cause: InputError): ConsoleError {
  return new ConsoleError(400, 'The filter is not understood', cause.message, {
    cure: { text: 'Change it in the address, or go back.' },
    cause,
  });
}
