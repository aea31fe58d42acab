import { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { pino } from 'pino';

/** The log that a service writes: one line of pino's for each request, gathered, to a file that nobody reads. */
const logger: FastifyBaseLogger = pino(
  { level: 'info' },
  pino.destination({ dest: '/dev/null', sync: false, minLength: 4096 }),
);

export const requestLog = {
  options: {
    loggerInstance: logger,
    logController: new LogController({ disableRequestLogging: true }),
  },
  attach(app: FastifyInstance): void {
    app.addHook('onResponse', (request, reply, done) => {
      const { method, url } = request;
      const line = { method, url, statusCode: reply.statusCode, durationMs: reply.elapsedTime };
      // As orc does: health checks would drown the rest.
      if (method === 'GET') request.log.debug(line, 'request');
      else request.log.info(line, 'request');
      done();
    });
  },
};
