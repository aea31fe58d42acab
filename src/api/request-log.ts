import type { FastifyReply, FastifyRequest } from 'fastify';
import { ERRORS, type ErrorId } from '../core/errors.ts';
import { type Logger, loggablePath } from '../logger.ts';

/** So many lines that say the same are written within so many milliseconds; the rest are counted. */
const LINES_PER_WINDOW = 100;
const WINDOW_MS = 1000;

/**
 * Of nginx: the client closed the connection. Stands for a failure that nobody was told of, since whoever hangs up must
 * not make a service look as if it failed.
 */
const CLIENT_CLOSED_REQUEST = 499;

type Level = 'debug' | 'info' | 'error';

type Message = 'request' | 'request failed' | 'connection closed';

/** What lines of a flood have in common. */
interface Kind {
  message: Message;
  level: Level;
  statusCode: number;
  error: ErrorId | undefined;
}

/**
 * One line in the log for every answer, except in a flood of what anybody can send: it would fill the disk with 25,000
 * lines a second. What is done with a key that is right always has its line.
 */
export class RequestLog {
  readonly #logger: Logger;
  /** Lines of this window about requests that proved nothing, by what they have in common. */
  readonly #floods = new Map<string, { kind: Kind; count: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Whether an answer of this kind has a line, as far as the level of the log decides. */
  isWanted({ method }: FastifyRequest, { statusCode }: FastifyReply): boolean {
    return this.#logger.isLevelEnabled(levelOf(method, statusCode));
  }

  /** @param hungUp whether the client did not wait for the answer */
  answered(request: FastifyRequest, reply: FastifyReply, hungUp: boolean): void {
    const { method, id, errorId: error, runId, automationSlug: automation, receivedAt } = request;
    const statusCode = hungUp && reply.statusCode >= 500 ? CLIENT_CLOSED_REQUEST : reply.statusCode;
    const level = levelOf(method, statusCode);
    if (!this.#logger.isLevelEnabled(level)) return;
    if (automation === undefined && !this.#hasLine({ message: 'request', level, statusCode, error })) return;
    // Nothing else says which slug a refused request meant; what was accepted has the name of its automation.
    const path = error === undefined ? request.routeOptions.url : loggablePath(request.url);
    const durationMs = Math.round((performance.now() - receivedAt) * 10) / 10;
    this.#logger[level](
      {
        requestId: id,
        method,
        path,
        statusCode,
        durationMs,
        error,
        automation,
        runId,
        // Left out of a line when it is not so.
        hungUp: hungUp || undefined,
      },
      'request',
    );
  }

  /** Why a request is answered `internal_error`. */
  failed({ id: requestId }: FastifyRequest, err: unknown): void {
    const message = 'request failed';
    if (!this.#hasLine({ message, level: 'error', statusCode: 500, error: 'internal_error' })) return;
    this.#logger.error({ err, requestId }, message);
  }

  /** Of what was refused before Fastify had anything to do with it. */
  refused(error: ErrorId, message: Message, fields?: Record<string, unknown>): void {
    const { statusCode } = ERRORS[error];
    if (!this.#logger.isLevelEnabled('info')) return;
    if (!this.#hasLine({ message, level: 'info', statusCode, error })) return;
    this.#logger.info({ ...fields, statusCode, error }, message);
  }

  /** Says what was only counted so far. */
  close(): void {
    clearTimeout(this.#timer);
    this.#sumUp();
  }

  #hasLine(kind: Kind): boolean {
    const key = Object.values(kind).join();
    const flood = this.#floods.get(key) ?? { kind, count: 0 };
    flood.count += 1;
    this.#floods.set(key, flood);
    this.#timer ??= setTimeout(() => this.#sumUp(), WINDOW_MS).unref();
    return flood.count <= LINES_PER_WINDOW;
  }

  #sumUp(): void {
    this.#timer = undefined;
    for (const { kind, count: all } of this.#floods.values()) {
      const count = all - LINES_PER_WINDOW;
      const { message, level, ...fields } = kind;
      if (count > 0) this.#logger[level]({ ...fields, count }, summaryOf(message, fields.error));
    }
    this.#floods.clear();
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
