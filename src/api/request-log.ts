import type { FastifyReply, FastifyRequest } from 'fastify';
import { ERRORS, type ErrorId } from '../core/errors.ts';
import { type Logger, loggablePath } from '../logger.ts';

/** Of refusals with the same error, so many have a line each within so many milliseconds; the rest are counted. */
const LINES_PER_WINDOW = 100;
const WINDOW_MS = 1000;

/**
 * One line in the log for every answer, except in a flood of refusals, which anybody can cause: it would fill the disk
 * with 25,000 lines a second. What is done with a key that is right always has its line.
 */
export class RequestLog {
  readonly #logger: Logger;
  /** Refusals of this window whose requests proved nothing. */
  readonly #refused = new Map<ErrorId, number>();
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
    const { statusCode } = reply;
    const level = levelOf(method, statusCode);
    if (!this.#logger.isLevelEnabled(level)) return;
    const isRefusal = error !== undefined && level === 'info' && automation === undefined;
    if (isRefusal && !this.#hasLine(error)) return;
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
  failed({ id: requestId }: FastifyRequest, error: unknown): void {
    this.#logger.error({ err: error, requestId }, 'request failed');
  }

  /** Of what was refused before Fastify had anything to do with it. */
  refused(error: ErrorId, message: 'request' | 'connection closed', fields?: Record<string, unknown>): void {
    if (!this.#logger.isLevelEnabled('info') || !this.#hasLine(error)) return;
    this.#logger.info({ ...fields, statusCode: ERRORS[error].statusCode, error }, message);
  }

  /** Says what was only counted so far. */
  close(): void {
    clearTimeout(this.#timer);
    this.#sumUp();
  }

  #hasLine(error: ErrorId): boolean {
    const count = (this.#refused.get(error) ?? 0) + 1;
    this.#refused.set(error, count);
    this.#timer ??= setTimeout(() => this.#sumUp(), WINDOW_MS).unref();
    return count <= LINES_PER_WINDOW;
  }

  #sumUp(): void {
    this.#timer = undefined;
    for (const [error, count] of this.#refused) {
      const more = count - LINES_PER_WINDOW;
      const { statusCode } = ERRORS[error];
      if (more > 0) this.#logger.info({ statusCode, error, count: more }, 'requests refused without a line');
    }
    this.#refused.clear();
  }
}

function levelOf(method: string, statusCode: number): 'debug' | 'info' | 'error' {
  if (statusCode === 500) return 'error';
  // Polls of monitors and readers would drown what an operator looks for.
  const isRoutine = (method === 'GET' || method === 'HEAD') && statusCode < 400;
  return isRoutine ? 'debug' : 'info';
}
