import type { FastifyInstance } from 'fastify';
import { auditedStore } from '../../store/audited-store.ts';
import { SESSION_MAX_MS } from '../../store/operators.ts';
import { ConsoleError } from '../console-error.ts';
import type { ConsoleDependencies } from '../dependencies.ts';
import { formOf } from '../plugins/forms.ts';
import { render } from '../render.tsx';
import { endedCookie, sessionCookie, sessionToken } from '../session.ts';
import { LoginView } from '../views/login.tsx';

/** So much of a user agent is kept, in characters. */
const USER_AGENT_LENGTH = 200;

/** Largest form that anybody may send, in bytes. A token has less than 100. */
const LOGIN_BYTES = 1024;

/** Logging in by a link, and out. */
export async function loginRoutes(app: FastifyInstance, { store, settings }: ConsoleDependencies) {
  const { url } = settings;

  // The preview of a chat opens links, too, and must not use this one up: a button does. What the link is worth is not said.
  app.get<{ Params: { token: string } }>('/login/:token', async ({ params }, reply) =>
    render(reply, { title: 'Log in' }, <LoginView token={params.token} />),
  );

  app.post('/login', { bodyLimit: LOGIN_BYTES, onRequest: app.checkGuesses }, async (request, reply) => {
    const { ip: address, headers } = request;
    const userAgent = (headers['user-agent'] ?? '').slice(0, USER_AGENT_LENGTH);
    const audited = auditedStore(store, { operator: 'nobody' }, (err) =>
      request.log.error({ err }, 'a login is not in the audit log'),
    );
    const session = await audited.operators.login(formOf(request).get('token') ?? '', { address, userAgent });
    if (!session) {
      await app.countGuess(request);
      throw new ConsoleError(
        401,
        'This link does not work',
        'It was used already, has expired, or is incomplete.',
        {
          cure: { text: 'A new one is made where orc runs:', command: 'orc operators link NAME' },
          headers: { 'www-authenticate': 'Link realm="orc console"' },
        },
      );
    }
    request.operator = session.operator;
    return reply.header('set-cookie', sessionCookie(url, session.token, SESSION_MAX_MS)).redirect('/', 303);
  });

  app.post(
    '/logout',
    { onRequest: app.authenticate, config: { isForViewers: true } },
    async (request, reply) => {
      const token = sessionToken(url, request.headers.cookie);
      if (token !== undefined) await store.operators.endSession(token);
      return reply.header('set-cookie', endedCookie(url)).redirect('/', 303);
    },
  );
}
