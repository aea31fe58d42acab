import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ERRORS, type ErrorId } from '../core/errors.ts';
import { LineLimit } from '../line-limit.ts';
import { type Logger, loggablePath } from '../logger.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Whether the log has the line of this request, or has counted it. */
    isLogged: boolean;
  }
}

/**
 * Of nginx: the client closed the connection. Stands for a failure that nobody was told of, since whoever hangs up must
 * not make a service look as if it failed.
 */
const CLIENT_CLOSED_REQUEST = 499;

type Level = 'debug' | 'info' | 'error';

type Message = 'request' | 'request failed' | 'connection closed';

export type RejectionListener = (request: FastifyRequest, error: ErrorId) => void;

/** What lines of a flood have in common. */
interface Kind {
  message: Message;
  level: Level;
  statusCode: number;
  error: ErrorId | undefined;
}

/**
 * One line in the log for every answer, except in a flood of what anybody can send. What is done with a key that is right
 * always has its line.
 */
export class RequestLog {
  readonly #logger: Logger;
  readonly #onRejected: RejectionListener;
  /** Of lines about requests that proved nothing. */
  readonly #limit: LineLimit<Kind>;
  /** Requests that were answered before all of them had come, without Fastify. It learns of their end, and answers nobody. */
  readonly #cutOff = new WeakSet<IncomingMessage>();

  /** @param onRejected is told of each request that was answered with an error */
  constructor(logger: Logger, onRejected: RejectionListener = () => undefined) {
    this.#logger = logger;
    this.#onRejected = onRejected;
    this.#limit = new LineLimit(({ message, level, ...fields }, count) =>
      logger[level]({ ...fields, count }, summaryOf(message, fields.error)),
    );
  }

  /**
   * Sees to the line of an answer that is about to be sent: Fastify calls no `onResponse` when the client hangs up before, nor
   * for a request that it cannot route.
   */
  watch(request: FastifyRequest, reply: FastifyReply): void {
    const { raw } = reply;
    if (raw.closed || request.raw.socket.destroyed) this.answered(request, reply, true);
    else raw.once('close', () => this.answered(request, reply, !raw.writableFinished));
  }

  /**
   * Writes the line, the first time that it is called for a request.
   *
   * @param hungUp whether the client did not wait for all of the answer
   */
  answered(request: FastifyRequest, reply: FastifyReply, hungUp = false): void {
    if (request.isLogged || this.#cutOff.has(request.raw)) return;
    request.isLogged = true;
    const { method, errorId: error, runId, automationSlug: automation, receivedAt } = request;
    // Whoever hangs up must not make a service look as if it failed.
    const isUntoldFailure = hungUp && reply.statusCode >= 500;
    if (error !== undefined && !isUntoldFailure) this.#onRejected(request, error);
    const statusCode = isUntoldFailure ? CLIENT_CLOSED_REQUEST : reply.statusCode;
    const level = levelOf(method, statusCode);
    if (!this.#logger.isLevelEnabled(level)) return;
    if (automation === undefined && !this.#limit.admits({ message: 'request', level, statusCode, error }))
      return;
    request.log[level](
      {
        method,
        // Nothing else says which slug a refused request meant; what was accepted has the name of its automation.
        path: error === undefined ? request.routeOptions.url : loggablePath(request.url),
        statusCode,
        durationMs: Math.round((performance.now() - receivedAt) * 10) / 10,
        error,
        automation,
        runId,
        ...request.caller,
        // Left out of a line when it is not so.
        hungUp: hungUp || undefined,
      },
      'request',
    );
  }

  /** Why a request is answered `internal_error`. */
  failed({ log }: FastifyRequest, err: unknown): void {
    const message = 'request failed';
    if (!this.#limit.admits({ message, level: 'error', statusCode: 500, error: 'internal_error' })) return;
    log.error({ err }, message);
  }

  /**
   * Of what was refused without Fastify.
   *
   * @param request when its headers had come
   */
  refused(
    error: ErrorId,
    message: Message,
    { remoteAddress: address }: Socket,
    request?: IncomingMessage,
  ): void {
    if (request) this.#cutOff.add(request);
    const { statusCode } = ERRORS[error];
    if (!this.#logger.isLevelEnabled('info')) return;
    if (!this.#limit.admits({ message, level: 'info', statusCode, error })) return;
    const { method, url } = request ?? {};
    const path = url === undefined ? undefined : loggablePath(url);
    this.#logger.info({ method, path, statusCode, error, address }, message);
  }

  /** Says what was only counted so far. */
  close(): void {
    this.#limit.close();
  }
}

function summaryOf(message: Message, error: ErrorId | undefined): string {
  if (message === 'request failed') return 'failures without a line';
  return error === undefined ? 'requests answered without a line' : 'requests refused without a line';
}

function levelOf(method: string, statusCode: number): Level {
  if (statusCode === 500) return 'error';
  // Polls of monitors and readers would drown what an operator looks for.
  const isRoutine = (method === 'GET' || method === 'HEAD') && statusCode < 400;
  return isRoutine ? 'debug' : 'info';
}
