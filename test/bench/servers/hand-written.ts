import { createHash, timingSafeEqual } from 'node:crypto';
import { TypeBoxValidatorCompiler } from '@fastify/type-provider-typebox';
import { Type } from '@sinclair/typebox';
import { Queue } from 'bullmq';
import { fastify } from 'fastify';
import { Redis } from 'ioredis';
import { v7 as uuidv7 } from 'uuid';
import { requestLog } from './request-log.ts';

/** What a good engineer writes in an afternoon: validated by TypeBox, logged by pino, the key checked, the payload queued. */
const { PORT, REDIS_URL = '' } = process.env;
const redis = new Redis(REDIS_URL, { maxRetriesPerRequest: null });
const queue = new Queue('hand-written', { connection: redis });
await queue.waitUntilReady();

interface Trigger {
  Params: { slug: string };
  Headers: { 'x-api-key': string };
  Body: Record<string, unknown>;
}

const app = fastify(requestLog.options);
requestLog.attach(app);
app.setValidatorCompiler(TypeBoxValidatorCompiler);
app.post<Trigger>('/trigger/:slug', {
  schema: {
    params: Type.Object({ slug: Type.String({ pattern: '^[a-z0-9]+(-[a-z0-9]+)*$' }) }),
    headers: Type.Object({ 'x-api-key': Type.String() }),
    body: Type.Object({}, { additionalProperties: true }),
    response: { 202: Type.Object({ runId: Type.String(), status: Type.String() }) },
  },
  handler: async (request, reply) => {
    const { slug } = request.params;
    const [keyHash, enabled] = await redis.hmget(`hand-written:${slug}`, 'keyHash', 'enabled');
    const presented = createHash('sha256').update(request.headers['x-api-key']).digest();
    if (!keyHash || !timingSafeEqual(presented, Buffer.from(keyHash, 'hex'))) {
      return reply.code(401).send({ error: 'invalid_api_key' });
    }
    if (enabled !== '1') return reply.code(403).send({ error: 'disabled' });
    const runId = `run_${uuidv7()}`;
    await queue.add(slug, request.body, { jobId: runId, attempts: 1, removeOnComplete: 1000 });
    return reply.code(202).send({ runId, status: 'queued' });
  },
});
await app.listen({ host: '127.0.0.1', port: Number(PORT) });
process.send?.('ready');
process.once('disconnect', () => process.exit());
