import { Job, Queue } from 'bullmq';
import { fastify } from 'fastify';
import { connect } from '../../../src/store/connect.ts';

/**
 * The least that a durable 202 can cost with Fastify, BullMQ and ioredis: BullMQ's script, on orc's own connection, once
 * for each request. No key, no check, no index, no log.
 */
const { PORT, REDIS_URL = '' } = process.env;
const redis = connect(REDIS_URL, 'patient', () => undefined);
const queue = new Queue('enqueue-only', { connection: redis });
await queue.waitUntilReady();
const backend = queue.getBackend();
const client = await backend.client;
const template = new Job(queue, 'bench', {}, { attempts: 1 }).asJSON();
const start = Date.now();
let accepted = 0;

const app = fastify({ logger: false });
app.post('/trigger/:slug', async (request, reply) => {
  accepted += 1;
  const runId = `run_${start}-${accepted}`;
  const job = { ...template, data: JSON.stringify(request.body), timestamp: Date.now() };
  await backend.addJobToTransaction(client, job, runId);
  return reply.code(202).send({ runId, status: 'queued' });
});
await app.listen({ host: '127.0.0.1', port: Number(PORT) });
process.send?.('ready');
process.once('disconnect', () => process.exit());
