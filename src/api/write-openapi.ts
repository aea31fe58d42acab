import { readFile, writeFile } from 'node:fs/promises';
import { readConfig } from '../config.ts';
import { PACKAGE_ROOT } from '../core/package-root.ts';
import { createLogger } from '../logger.ts';
import { connect } from '../store/connect.ts';
import { createStore } from '../store/store.ts';
import { buildApp } from './app.ts';
import { HealthMonitor } from './health-monitor.ts';
import { openapiText } from './plugins/openapi.ts';

/** Writes openapi/openapi.json from the routes; with `--check`, fails instead when the file says something else. */
const file = new URL('openapi/openapi.json', PACKAGE_ROOT);

// The document depends on no environment and needs no Redis, so that the connection ends before it begins.
const config = readConfig({});
const redis = connect('redis://127.0.0.1:6379', 'fail-fast', () => undefined);
redis.disconnect();
const store = createStore(redis, config.REDIS_PREFIX, () => undefined);
const app = buildApp({
  store,
  health: new HealthMonitor(store, () => undefined),
  logger: createLogger('silent', 'api'),
  settings: {
    bodyLimitBytes: config.BODY_LIMIT_BYTES,
    acceptTimeoutMs: config.ACCEPT_TIMEOUT_MS,
    maxQueuedRuns: config.MAX_QUEUED_RUNS,
    version: config.version,
    trustedProxies: [],
  },
});
await app.ready();
const text = openapiText(app);
await app.close();

if (!process.argv.includes('--check')) {
  await writeFile(file, text);
} else if ((await readFile(file, 'utf8').catch(() => '')) !== text) {
  process.stderr.write(
    'openapi/openapi.json is not what the routes say. Run `npm run openapi` and commit it.\n',
  );
  process.exitCode = 1;
}
