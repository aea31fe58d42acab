import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { isTerminal, type Run } from '../../core/run.ts';
import type { Store } from '../../store/store.ts';
import { ConsoleError, notFound } from '../console-error.ts';
import type { ConsoleDependencies } from '../dependencies.ts';
import { EVENT_STREAM_HEADERS, EventStream } from '../live/event-stream.ts';
import { LOG_POSITION, RunFeeds } from '../live/run-feed.ts';
import { render } from '../render.tsx';
import { readRunDetails } from '../run-details.ts';
import { FILE_HEADERS, sendFile } from '../send-file.ts';
import { RunView } from '../views/run.tsx';
import { logBytes, logText } from '../whole-log.ts';

/** How long Redis may take to accept a run, in milliseconds. */
const ACCEPT_MS = 5000;

/** Two beginnings of an id tell whether one is enough. */
const ENOUGH = 2;

type RunRequest = FastifyRequest<{ Params: { id: string } }>;

/** One run: its page, its log as it is written, its files, and what admins may do with it. */
export async function runRoutes(app: FastifyInstance, { store, logger, settings }: ConsoleDependencies) {
  const feeds = new RunFeeds(store, (err) => logger.warn({ err }, 'a log that is watched cannot be read'));
  app.addHook('preClose', async () => feeds.close());

  app.get('/runs/:id', async (request: RunRequest, reply) => {
    const { id } = request.params;
    const details = await readRunDetails(store, id);
    if (!details) return reply.redirect(`/runs/${await findRun(store, id)}`, 302);
    const isAdmin = request.operator?.role === 'admin';
    const title = `${details.run.automation}: ${details.run.status.replace('_', ' ')}`;
    return render(reply, { title, section: 'runs' }, <RunView details={details} isAdmin={isAdmin} />);
  });

  app.get('/runs/:id/events', async (request: RunRequest, reply) => {
    const run = await getRun(store, request.params.id);
    if (!feeds.hasPlace) {
      throw new ConsoleError(503, 'Too many watch', 'The console sends no more logs at the same time.', {
        headers: { 'retry-after': '10' },
      });
    }
    const stream = new EventStream();
    feeds.watch(run.id, positionOf(request), stream, () => app.isStillAllowed(request));
    return reply.headers(EVENT_STREAM_HEADERS).send(stream.body);
  });

  app.get('/runs/:id/log', async (request: RunRequest, reply) => {
    const run = await getRun(store, request.params.id);
    return reply
      .headers({ ...FILE_HEADERS, 'content-type': 'text/plain; charset=utf-8' })
      .send(Readable.from(logText(store, run.id)));
  });

  app.get('/runs/:id/log.txt', async (request: RunRequest, reply) => {
    const run = await getRun(store, request.params.id);
    return sendFile(reply, `${run.id}.log`, Readable.from(logBytes(store, run.id)));
  });

  app.get('/runs/:id/payload', async (request: RunRequest, reply) => {
    const run = await getRun(store, request.params.id);
    return sendFile(reply, `${run.id}-payload.json`, (await store.runs.payload(run.id)) ?? '{}');
  });

  app.get('/runs/:id/result', async (request: RunRequest, reply) => {
    const run = await getRun(store, request.params.id);
    const result = await store.results.read(run);
    if (result === undefined) throw notFound('result', 'The run has no result, or it is no longer kept.');
    return sendFile(reply, `${run.id}-result.json`, result);
  });

  app.get<{ Params: { id: string; index: string } }>(
    '/runs/:id/artifacts/:index',
    async ({ params }, reply) => {
      const run = await getRun(store, params.id);
      const left = await store.artifacts.list(run.id);
      const name = /^\d{1,4}$/.test(params.index) ? left?.artifacts[Number(params.index)]?.name : undefined;
      const opened = name === undefined ? undefined : await store.artifacts.open(run.id, name);
      if (!opened) throw notFound('artifact', 'The run has no such artifact, or it is no longer kept.');
      reply.header('content-length', opened.artifact.bytes);
      return sendFile(reply, opened.artifact.name, Readable.from(opened.chunks));
    },
  );

  app.post('/runs/:id/cancel', async (request: RunRequest, reply) => {
    const run = await getRun(store, request.params.id);
    const result = await request.store.runs.cancel(run.id);
    if (result === 'ended') {
      throw new ConsoleError(409, 'The run has ended', 'It ended before it could be cancelled.');
    }
    return reply.redirect(`/runs/${run.id}`, 303);
  });

  app.post('/runs/:id/retry', async (request: RunRequest, reply) => {
    const run = await getRun(store, request.params.id);
    return reply.redirect(`/runs/${await retry(request.store, run, settings.maxQueuedRuns)}`, 303);
  });
}

async function getRun(store: Store, id: string): Promise<Run> {
  const run = await store.runs.get(id);
  if (!run) throw noSuchRun();
  return run;
}

function noSuchRun(): ConsoleError {
  return notFound('run', 'It does not exist, or has ended so long ago that it is no longer kept.');
}

/** The run whose id begins like this. @throws ConsoleError when there is none, or several */
async function findRun(store: Store, text: string): Promise<string> {
  const [, beginning] = /^(?:run_)?([0-9a-f-]{1,35})$/.exec(text) ?? [];
  if (beginning === undefined) throw noSuchRun();
  const [runId, other] = await store.index.startingWith(`run_${beginning}`, ENOUGH);
  if (runId === undefined) throw noSuchRun();
  if (other === undefined) return runId;
  throw new ConsoleError(404, 'Several runs', 'Several runs begin like this. Write more of the id.');
}

/** What the browser has: from a stream that was cut off, else from the page. */
function positionOf({ headers, url }: FastifyRequest): string | undefined {
  const given = headers['last-event-id'] ?? new URLSearchParams(url.split('?')[1]).get('after');
  return typeof given === 'string' && LOG_POSITION.test(given) ? given : undefined;
}

/** @returns the id of the new run */
async function retry(store: Store, run: Run, maxQueuedRuns: number): Promise<string> {
  const refused = (message: string, text?: string) =>
    new ConsoleError(409, 'No new run was started', message, text === undefined ? {} : { cure: { text } });
  if (!isTerminal(run.status)) throw refused(`The run is ${run.status}. Only an ended run can be retried.`);
  const opened = await store.automations.open(run.automation);
  if (opened.status === 'rejected') throw refused('Its automation is deleted.');
  if (opened.status === 'disabled') throw refused('Its automation is disabled.', 'Enable it first.');
  const limits = { endsAt: Date.now() + ACCEPT_MS, maxQueuedRuns };
  const result = await store.runs.retry(run.id, opened.automation, limits);
  switch (result.status) {
    case 'accepted':
      return result.runId;
    case 'invalid':
      throw refused(`Its payload does not fit the schema that the automation has now: ${result.problem}.`);
    case 'full':
      throw refused(`The queue is full: ${maxQueuedRuns} runs wait.`, 'Add workers, or try again later.');
    default:
      throw refused('The automation was changed at the same time.', 'Try again.');
  }
}
