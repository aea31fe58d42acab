import { afterAll, beforeAll } from 'vitest';
import { buildConsole } from '../../src/console/app.ts';
import type { ConsoleSettings } from '../../src/console/dependencies.ts';
import { sessionCookie } from '../../src/console/session.ts';
import type { OperatorRole } from '../../src/core/operator.ts';
import { createLogger } from '../../src/logger.ts';
import type { Store } from '../../src/store/store.ts';
import { openTestStore } from './store.ts';

export const SETTINGS: ConsoleSettings = {
  url: 'http://localhost:3001',
  apiUrl: 'http://localhost:3000',
  version: '1.2.3-test',
  bodyLimitBytes: 262_144,
  maxQueuedRuns: 100_000,
  runTimeoutMs: 600_000,
  trustedProxies: [],
};

/** What a browser sends with each request to the console's own pages. */
const SAME_ORIGIN = { host: 'localhost:3001', 'sec-fetch-site': 'same-origin' };

/**
 * The production console over a store of its own, with the admin `ada` and the viewer `vic` logged in. For `inject`, or
 * `listen` it.
 */
export function openTestConsole(settings: Partial<ConsoleSettings> = {}) {
  const store = openTestStore();
  const app = buildConsole({
    store,
    logger: createLogger('silent', 'console'),
    settings: { ...SETTINGS, ...settings },
  });
  const cookies = { admin: '', viewer: '' };
  beforeAll(async () => {
    cookies.admin = await logIn(store, 'ada', 'admin');
    cookies.viewer = await logIn(store, 'vic', 'viewer');
    await app.ready();
  });
  afterAll(() => app.close());

  /** Asks for a page as an operator. */
  const get = (url: string, role: OperatorRole = 'admin') =>
    app.inject({ url, headers: { ...SAME_ORIGIN, cookie: cookies[role] } });

  /** Sends a form as an operator. */
  const post = (url: string, form: Record<string, string> = {}, role: OperatorRole = 'admin') =>
    app.inject({
      method: 'POST',
      url,
      headers: {
        ...SAME_ORIGIN,
        cookie: cookies[role],
        'content-type': 'application/x-www-form-urlencoded',
      },
      payload: new URLSearchParams(form).toString(),
    });

  return { app, store, cookies, get, post };
}

/** Makes an operator and logs it in. @returns the Cookie header of its session */
async function logIn(store: Store, name: string, role: OperatorRole, url = SETTINGS.url): Promise<string> {
  await store.operators.add(name, role);
  const link = await store.operators.createLink(name);
  const session = await store.operators.login(link?.token ?? '', { address: '127.0.0.1', userAgent: 'test' });
  if (!session) throw new Error(`${name} cannot log in`);
  return sessionCookie(url, session.token, 1000).split(';', 1)[0] ?? '';
}
