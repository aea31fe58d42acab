import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify';
import type { Store } from '../store/store.ts';
import { asksForLoopback } from './asks-for-loopback.ts';

const QUEUES_PATH = '/queues';

/** The page asks another site for its fonts, and does without them; it is no business of that site's who opens it. */
const CONTENT_SECURITY_POLICY =
  "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'";

export interface QueuesOptions {
  /** Whether what it shows can be changed there, too. */
  isWritable: boolean;
  /** Asked for when there is one. */
  token: string | undefined;
  /** Absent while the process starts. */
  store(): Store | undefined;
}

/**
 * BullMQ's queue in a browser, by Bull Board, which is loaded only here.
 *
 * @throws when its packages are not installed
 */
export async function registerQueues(app: FastifyInstance, options: QueuesOptions): Promise<void> {
  const { createBullBoard, BullMQAdapter, FastifyAdapter } = await loadBullBoard();
  const { isWritable, token, store } = options;
  const serverAdapter = new FastifyAdapter().setBasePath(QUEUES_PATH);
  const board = createBullBoard({ queues: [], serverAdapter });
  let isShown = false;

  /** The queue can be shown from when Redis was there for the first time. */
  const show = async (): Promise<void> => {
    if (isShown) return;
    const queue = await store()?.queue.open();
    if (!queue || isShown) return;
    isShown = true;
    board.addQueue(new BullMQAdapter(queue, { readOnlyMode: !isWritable }));
  };

  const routes: FastifyPluginCallback = (scope, _options, done) => {
    scope.addHook('onRequest', async (request, reply) => {
      if (!isAllowed(request, token)) return refuse(reply, token);
      reply.headers({ 'content-security-policy': CONTENT_SECURITY_POLICY, 'referrer-policy': 'no-referrer' });
      await show().catch(() => undefined);
    });
    scope.register(serverAdapter.registerPlugin() as FastifyPluginCallback);
    done();
  };
  await app.register(routes, { prefix: QUEUES_PATH });
}

async function loadBullBoard() {
  try {
    const [{ createBullBoard }, { BullMQAdapter }, { FastifyAdapter }] = await Promise.all([
      import('@bull-board/api'),
      import('@bull-board/api/bullMQAdapter'),
      import('@bull-board/fastify'),
    ]);
    return { createBullBoard, BullMQAdapter, FastifyAdapter };
  } catch (cause) {
    const message =
      'OPS_QUEUES needs two packages that are not installed: npm install --save-prod @bull-board/api @bull-board/fastify';
    throw new Error(message, { cause });
  }
}

/**
 * With a token, who has it; without one, who is on this machine. A page of another site that is open in a browser here
 * must not count as that: it could send what changes something blindly.
 */
function isAllowed(request: FastifyRequest, token: string | undefined): boolean {
  const { headers, method } = request;
  const site = headers['sec-fetch-site'] ?? 'none';
  if (method !== 'GET' && site !== 'same-origin' && site !== 'none') return false;
  if (token !== undefined) return isToken(headers.authorization, token);
  return asksForLoopback(request);
}

/** As the password of HTTP's basic authentication, which browsers ask for, or as a bearer token. */
function isToken(authorization: string | undefined, token: string): boolean {
  const [scheme = '', credentials = ''] = authorization?.split(' ') ?? [];
  const decoded = Buffer.from(credentials, 'base64').toString();
  const given = scheme.toLowerCase() === 'basic' ? decoded.slice(decoded.indexOf(':') + 1) : credentials;
  return timingSafeEqual(sha256(given), sha256(token));
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function refuse(reply: FastifyReply, token: string | undefined): FastifyReply {
  if (token === undefined) return reply.code(403).send({ statusCode: 403, message: 'Ask for localhost.' });
  reply.header('www-authenticate', 'Basic realm="orc", charset="UTF-8"');
  return reply.code(401).send({ statusCode: 401, message: 'The password is OPS_TOKEN.' });
}
