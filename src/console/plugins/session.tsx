import { BlockList, isIP } from 'node:net';
import { fastifyRateLimit, normalizeIP } from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { withDeadline } from '../../core/deadline.ts';
import { isOperatorName, type Operator } from '../../core/operator.ts';
import { auditedStore } from '../../store/audited-store.ts';
import type { Store } from '../../store/store.ts';
import { ConsoleError, notFound } from '../console-error.ts';
import type { ConsoleDependencies } from '../dependencies.ts';
import { sessionToken } from '../session.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** An onRequest hook: lets operators pass, and only admins change something. */
    authenticate(request: FastifyRequest): Promise<void>;
    /** An onRequest hook behind it: lets admins pass. */
    requireAdmin(request: FastifyRequest): Promise<void>;
    /** Counts a token that opens nothing. @throws ConsoleError when its address has sent too many of them */
    countGuess(request: FastifyRequest): Promise<void>;
    /** @throws ConsoleError while the address of the request has to wait */
    checkGuesses(request: FastifyRequest): Promise<void>;
    /** Whether the operator of a request, of a stream that is still open, may see it; keeps no session alive. */
    isStillAllowed(request: FastifyRequest): Promise<boolean>;
  }
  interface FastifyRequest {
    /** Who sent it; set for every route but the login's. */
    operator: Operator | undefined;
    /** The store for this operator: what is changed by it is in the audit log. */
    store: Store;
  }
  interface FastifyContextConfig {
    /** A route that changes something of the operator's own, and so is for viewers, too. */
    isForViewers?: boolean;
  }
}

/** Tokens that open nothing, of one address within a minute, before it has to wait. */
const GUESSES_PER_MINUTE = 20;

/** How long Redis may take to answer, in milliseconds. */
const REDIS_DEADLINE_MS = 3000;

/** Addresses remembered at the same time; the ones that guessed least recently are forgotten first. */
const MAX_ADDRESSES = 5000;

export const sessionPlugin = fastifyPlugin(
  async (app: FastifyInstance, { store, settings }: ConsoleDependencies) => {
    const { url, userHeader, trustedProxies } = settings;
    const isTrusted = addressList(trustedProxies);
    await app.register(fastifyRateLimit, {
      global: false,
      max: GUESSES_PER_MINUTE,
      timeWindow: 60_000,
      cache: MAX_ADDRESSES,
      keyGenerator: ({ ip }) => (isIP(ip) ? normalizeIP(Buffer.from(ip).toString()) : 'no address'),
    });
    const limit = app.createRateLimit();
    const guess = async (request: FastifyRequest, increment: boolean) => {
      const guesses = await limit(request, { increment });
      if (guesses.isAllowed || !guesses.isExceeded) return;
      throw new ConsoleError(429, 'Too many tries', 'Too many logins from this address have failed.', {
        cure: { text: `Try again in ${guesses.ttlInSeconds} s.` },
        headers: { 'retry-after': `${guesses.ttlInSeconds}` },
      });
    };

    app.decorateRequest('operator', undefined);
    app.decorateRequest('store', {
      getter(this: FastifyRequest): Store {
        const { operator, log } = this;
        if (!operator) throw new Error('Nobody is logged in.');
        return auditedStore(store, { operator: operator.name }, (err) =>
          log.error({ err }, 'a change is not in the audit log'),
        );
      },
    });
    app.decorate('countGuess', (request: FastifyRequest) => guess(request, true));
    app.decorate('checkGuesses', (request: FastifyRequest) => guess(request, false));

    /** The operator whom a single sign-on proxy names. It is believed by its own address, not by one it passes on. */
    const namedByProxy = async ({ headers, raw }: FastifyRequest): Promise<Operator | undefined> => {
      const name = userHeader && headers[userHeader.toLowerCase()];
      if (typeof name !== 'string' || !isTrusted(raw.socket.remoteAddress)) return undefined;
      const operator = isOperatorName(name) ? await store.operators.get(name) : undefined;
      if (operator) return { name, role: operator.role };
      throw new ConsoleError(
        403,
        'No operator of this name',
        'You are logged in, but are no operator of orc.',
        {
          cure: { text: 'An admin adds you with', command: 'orc operators add NAME --role viewer' },
        },
      );
    };

    const operatorOf = async (request: FastifyRequest, isActivity: boolean) => {
      const named = await namedByProxy(request);
      if (named) return named;
      const token = sessionToken(url, request.headers.cookie);
      if (!token) return undefined;
      // Only after this one has failed: the failures of others never shut out a session.
      const operator = await store.operators.ofSession(token, isActivity);
      if (!operator) await app.countGuess(request);
      return operator;
    };

    const requireAdmin = async ({ operator }: FastifyRequest) => {
      if (operator?.role === 'admin') return;
      throw new ConsoleError(
        403,
        'Only admins may do this',
        'You are a viewer: you see everything and change nothing.',
        {
          cure: { text: 'Ask an admin.' },
        },
      );
    };
    app.decorate('requireAdmin', requireAdmin);

    app.decorate('authenticate', async (request: FastifyRequest) => {
      // Every page begins with this question: a Redis that hangs does not hold browsers up.
      const isActivity = request.headers['x-by-itself'] === undefined;
      request.operator = await withDeadline(operatorOf(request, isActivity), REDIS_DEADLINE_MS);
      if (!request.operator) throw await withDeadline(notLoggedIn(store), REDIS_DEADLINE_MS);
      const { method, routeOptions } = request;
      const isReading = method === 'GET' || method === 'HEAD';
      if (!isReading && !routeOptions.config.isForViewers) await requireAdmin(request);
    });

    app.decorate('isStillAllowed', async (request: FastifyRequest) => {
      const operator = await operatorOf(request, false).catch(() => undefined);
      return operator !== undefined && operator.name === request.operator?.name;
    });

    // Only operators learn which pages there are.
    app.setNotFoundHandler({ preValidation: app.authenticate }, async () => {
      throw notFound('page', 'There is nothing at this address.');
    });
  },
  { name: 'session', fastify: '5.x', dependencies: ['errors', 'request-guard'] },
);

async function notLoggedIn(store: ConsoleDependencies['store']): Promise<ConsoleError> {
  const headers = { 'www-authenticate': 'Link realm="orc console"' };
  const isNew = (await store.operators.count()) === 0;
  if (isNew) {
    return new ConsoleError(401, 'There is no operator yet', 'Nobody can log in to this console so far.', {
      cure: { text: 'Make the first one where orc runs:', command: 'orc operators add NAME --role admin' },
      headers,
    });
  }
  return new ConsoleError(401, 'Log in', 'You log in with a link that works once.', {
    cure: { text: 'Whoever has the command line of orc makes one:', command: 'orc operators link NAME' },
    headers,
  });
}

/** @param addresses of hosts and networks */
function addressList(addresses: readonly string[]): (address: string | undefined) => boolean {
  const list = new BlockList();
  for (const each of addresses) {
    const [address = '', bits] = each.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return (address = '') => isIP(address) !== 0 && list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}
