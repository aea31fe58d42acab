import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import { Queue } from 'bullmq';
import { fastify } from 'fastify';
import { Redis } from 'ioredis';

/** What a good engineer writes in an afternoon: the key is checked, the payload is queued, the run is answered for. */
const { PORT, REDIS_URL = '' } = process.env;
const redis = new Redis(REDIS_URL, { maxRetriesPerRequest: null });
const queue = new Queue('hand-written', { connection: redis });
await queue.waitUntilReady();

interface Trigger {
  Params: { slug: string };
  Headers: { 'x-api-key': string };
  Body: Record<string, unknown>;
}

const app = fastify({ logger: false });
app.post<Trigger>('/trigger/:slug', {
  schema: {
    headers: {
      type: 'object',
      required: ['x-api-key'],
      properties: { 'x-api-key': { type: 'string' } },
    },
    body: { type: 'object' },
    response: {
      202: { type: 'object', properties: { runId: { type: 'string' }, status: { type: 'string' } } },
    },
  },
  handler: async (request, reply) => {
    const { slug } = request.params;
    const [keyHash, enabled] = await redis.hmget(`hand-written:${slug}`, 'keyHash', 'enabled');
    const presented = createHash('sha256').update(request.headers['x-api-key']).digest();
    if (!keyHash || !timingSafeEqual(presented, Buffer.from(keyHash, 'hex'))) {
      return reply.code(401).send({ error: 'invalid_api_key' });
    }
    if (enabled !== '1') return reply.code(403).send({ error: 'disabled' });
    const runId = `run_${randomUUID()}`;
    await queue.add(slug, request.body, { jobId: runId, attempts: 1, removeOnComplete: 1000 });
    return reply.code(202).send({ runId, status: 'queued' });
  },
});
await app.listen({ host: '127.0.0.1', port: Number(PORT) });
process.send?.('ready');
process.once('disconnect', () => process.exit());
