import { fastify } from 'fastify';
import { requestLog } from './request-log.ts';

/**
 * The limit of what Fastify can do: it parses the same body, answers the same bytes, logs by pino, and does nothing else.
 */
const { PORT, HEALTH = '' } = process.env;
const health = Buffer.from(HEALTH);

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
await app.listen({ host: '127.0.0.1', port: Number(PORT) });
process.send?.('ready');
process.once('disconnect', () => process.exit());
