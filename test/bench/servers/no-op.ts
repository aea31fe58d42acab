import { readFileSync } from 'node:fs';
import { fastify } from 'fastify';
import { requestLog } from './request-log.ts';

/**
 * The limit of what Fastify can do: it parses the same body, answers the same bytes, logs by pino, and does nothing else. Answers to
 * GET requests are files of the directory that the environment names.
 */
const { PORT, ANSWERS } = process.env;
const answer = (file: string) => readFileSync(`${ANSWERS}/${file}`);
const [health, html, markdown] = [answer('health'), answer('html'), answer('markdown')];

const app = fastify(requestLog.options);
requestLog.attach(app);
app.route({
  method: 'POST',
  url: '/trigger/:slug',
  schema: {
    response: {
      202: { type: 'object', properties: { runId: { type: 'string' }, status: { type: 'string' } } },
    },
  },
  handler: (_request, reply) => {
    reply.code(202).send({ runId: 'run_01a1fd79-2020-716f-b65b-e40f10ea5e54', status: 'queued' });
  },
});
app.get('/health', (_request, reply) => {
  reply.type('application/json').send(health);
});
app.get('/html', (_request, reply) => {
  reply.type('text/html').send(html);
});
app.get('/markdown', (_request, reply) => {
  reply.type('text/markdown').send(markdown);
});
await app.listen({ host: '127.0.0.1', port: Number(PORT) });
process.send?.('ready');
process.once('disconnect', () => process.exit());
