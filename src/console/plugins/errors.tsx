import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { DeadlineError } from '../../core/deadline.ts';
import { LineLimit } from '../../line-limit.ts';
import type { RedisClient } from '../../store/connect.ts';
import { ConsoleError } from '../console-error.ts';
import { render } from '../render.tsx';
import { SECURITY_HEADERS } from '../security-headers.ts';
import { ErrorView } from '../views/error.tsx';

/** What lines of a flood have in common. */
interface Kind {
  message: 'request' | 'request failed';
  statusCode: number;
  path: string | undefined;
}

/** Every error is a page in words, with the request's id, which the log has too, except in a flood of what anybody can send. */
export const errorsPlugin = fastifyPlugin(
  async (app: FastifyInstance, { redis }: { redis: Pick<RedisClient, 'status'> }) => {
    const lines = new LineLimit<Kind>(({ message, ...fields }, count) =>
      app.log.info({ ...fields, count }, `${message === 'request' ? 'requests' : 'failures'} without a line`),
    );
    app.addHook('onClose', async () => lines.close());

    app.setErrorHandler((error, request, reply) => {
      // Whatever Redis' client says of it, in many words.
      const isAway =
        error instanceof DeadlineError || (!(error instanceof ConsoleError) && redis.status !== 'ready');
      const told = isAway ? redisAway(error) : toConsoleError(error);
      const { statusCode } = told;
      const kind: Kind = { message: 'request failed', statusCode, path: request.routeOptions.url };
      if (statusCode >= 500 && lines.admits(kind)) request.log.error({ err: error }, 'request failed');
      sendError(request, reply, told);
    });

    app.addHook('onResponse', async (request, reply) => {
      const { method, ip: address, operator, routeOptions } = request;
      const isRoutine = (method === 'GET' || method === 'HEAD') && reply.statusCode < 400;
      const { statusCode } = reply;
      const kind: Kind = { message: 'request', statusCode, path: routeOptions.url };
      if (!operator && !lines.admits(kind)) return;
      const durationMs = Math.round(reply.elapsedTime * 10) / 10;
      // The route and not the target, which may hold a login link.
      const line = {
        method,
        path: routeOptions.url,
        statusCode,
        durationMs,
        address,
        operator: operator?.name,
      };
      request.log[isRoutine ? 'debug' : 'info'](line, 'request');
    });
  },
  { name: 'errors', fastify: '5.x' },
);

/** Answers a request whose target cannot be decoded. Fastify runs no hooks for it. */
export function refuseTarget(error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
  sendError(request, reply.headers(SECURITY_HEADERS), toConsoleError(error));
}

function redisAway(cause: unknown): ConsoleError {
  return new ConsoleError(
    503,
    'Redis is away',
    'The console cannot reach Redis, and shows nothing without it.',
    {
      cure: {
        text: 'The page works again as soon as Redis is back. To find out what is wrong:',
        command: 'orc doctor',
      },
      headers: { 'retry-after': '5' },
      cause,
    },
  );
}

function sendError(request: FastifyRequest, reply: FastifyReply, error: ConsoleError): FastifyReply {
  const { statusCode, title, message, cure, headers } = error;
  reply.headers(headers);
  return render(
    reply,
    { title, statusCode },
    <ErrorView title={title} message={message} cure={cure} requestId={request.id} />,
  );
}

/** What Fastify itself refuses, in words. */
function toConsoleError(error: unknown): ConsoleError {
  if (error instanceof ConsoleError) return error;
  const { statusCode = 500 } = error as Partial<FastifyError>;
  if (statusCode === 413) {
    return new ConsoleError(413, 'Too much at once', 'What was sent is larger than the console takes.', {
      cause: error,
    });
  }
  if (statusCode >= 400 && statusCode < 500) {
    return new ConsoleError(
      statusCode,
      'The request is not understood',
      'The console expects its own forms.',
      {
        cause: error,
      },
    );
  }
  return new ConsoleError(500, 'Something went wrong', 'The log of the console has the cause.', {
    cure: { text: 'Try again. If it stays, look for the request id in the log.' },
    cause: error,
  });
}
