import type { FastifyRequest } from 'fastify';
import { ApiError, type ErrorId } from '../core/errors.ts';

/** What a request is refused with whose part its schema does not hold for. */
const REFUSALS: Readonly<Record<string, ErrorId>> = {
  // No automation has such a slug.
  params: 'invalid_api_key',
  headers: 'invalid_idempotency_key',
  body: 'invalid_payload',
};

/** What a request is refused with that Fastify has found invalid, or whose body could not be read as JSON. */
export function validationRefusal({ validationError, bodyProblem }: FastifyRequest): ApiError {
  const part = validationError?.validationContext ?? '';
  const id = part === 'body' ? bodyProblem : undefined;
  return new ApiError(id ?? REFUSALS[part] ?? 'bad_request', { cause: validationError });
}
