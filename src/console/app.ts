import { randomUUID } from 'node:crypto';
import { type FastifyPluginAsync, fastify, LogController } from 'fastify';
import { readingStore } from '../store/audited-store.ts';
import type { ConsoleDependencies } from './dependencies.ts';
import { errorsPlugin, refuseTarget } from './plugins/errors.tsx';
import { formsPlugin } from './plugins/forms.ts';
import { requestGuardPlugin } from './plugins/request-guard.ts';
import { sessionPlugin } from './plugins/session.tsx';
import { openReadings } from './readings.ts';
import { assetRoutes } from './routes/assets.ts';
import { auditRoutes } from './routes/audit.tsx';
import { automationRoutes } from './routes/automation.tsx';
import { automationsRoutes } from './routes/automations.tsx';
import { loginRoutes } from './routes/login.tsx';
import { newAutomationRoutes } from './routes/new-automation.tsx';
import { overviewRoutes } from './routes/overview.tsx';
import { runRoutes } from './routes/run.tsx';
import { runsRoutes } from './routes/runs.tsx';
import { workersRoutes } from './routes/workers.tsx';

/** Percent-encoding makes three bytes of one; the fields of a form besides the payload come on top. */
const FORM_BYTES = 65_536;

const REQUEST_TIMEOUT_MS = 30_000;

/** The console as a Fastify instance with every option it has in production. It does not listen. */
export function buildConsole(dependencies: ConsoleDependencies) {
  const { logger, settings } = dependencies;
  const { bodyLimitBytes, trustedProxies } = settings;
  const app = fastify({
    loggerInstance: logger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'requestId' }),
    // Never the one that a browser or a proxy sends: an error page shows it.
    genReqId: () => randomUUID(),
    requestTimeout: REQUEST_TIMEOUT_MS,
    bodyLimit: bodyLimitBytes * 3 + FORM_BYTES,
    trustProxy: trustedProxies.length > 0 && trustedProxies,
    return503OnClosing: false,
    frameworkErrors: refuseTarget,
  });
  app.register(errorsPlugin, { redis: dependencies.store.redis });
  app.register(requestGuardPlugin, { url: settings.url });
  app.register(formsPlugin);
  app.register(assetRoutes);
  app.register(sessionPlugin, dependencies);
  app.register(loginRoutes, dependencies);
  app.register(pages, { ...dependencies, store: readingStore(dependencies.store) });
  return app;
}

/** Everything that only operators get. A route that changes something is for admins, unless its config says otherwise. */
const pages: FastifyPluginAsync<ConsoleDependencies> = async (app, options) => {
  const dependencies = { ...options, readings: openReadings(options.store, options.settings) };
  app.addHook('onRequest', app.authenticate);
  app.register(overviewRoutes, dependencies);
  app.register(automationsRoutes, dependencies);
  app.register(newAutomationRoutes, dependencies);
  app.register(automationRoutes, dependencies);
  app.register(runsRoutes, dependencies);
  app.register(runRoutes, dependencies);
  app.register(workersRoutes, dependencies);
  app.register(auditRoutes, dependencies);
};
