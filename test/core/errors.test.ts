import { describe, expect, test } from 'vitest';
import {
  ApiError,
  ERRORS,
  type ErrorDefinition,
  type ErrorId,
  errorBody,
  UNCONFIRMED_MESSAGE,
} from '../../src/core/errors.ts';

const catalogue = Object.entries(ERRORS) as [ErrorId, ErrorDefinition][];

/** Begins like a sentence and ends like one. */
const SENTENCE = /^[A-Z].*\.$/;

describe('every error', () => {
  test('is named in snake_case', () => {
    for (const [id] of catalogue) expect(id).toMatch(/^[a-z]+(_[a-z]+)*$/);
  });

  test('says in sentences what is wrong and what resolves it', () => {
    for (const [id, { message, hint }] of catalogue) {
      expect(message, `message of ${id}`).toMatch(SENTENCE);
      expect(hint, `hint of ${id}`).toMatch(SENTENCE);
    }
  });

  test('has a message of its own', () => {
    const messages = [...catalogue.map(([, { message }]) => message), UNCONFIRMED_MESSAGE];
    expect(new Set(messages).size).toBe(messages.length);
  });

  test('has the status of an error', () => {
    for (const [id, { statusCode }] of catalogue) {
      expect(statusCode, id).toBeGreaterThanOrEqual(400);
      expect(statusCode, id).toBeLessThan(600);
    }
  });

  test('says when to come back if its status is 429 or 503, and only then', () => {
    for (const [id, { statusCode, retryAfterSeconds }] of catalogue) {
      if (statusCode === 429 || statusCode === 503) expect(retryAfterSeconds, id).toBeGreaterThan(0);
      else expect(retryAfterSeconds, id).toBeUndefined();
    }
  });

  test('becomes a body of exactly the four fields of the contract', () => {
    for (const [id, { statusCode, message, hint }] of catalogue) {
      expect(errorBody(id)).toEqual({ statusCode, error: id, message, hint });
    }
  });
});

test('the message of an unconfirmed run is a sentence, which replaces the catalogued one', () => {
  expect(UNCONFIRMED_MESSAGE).toMatch(SENTENCE);
  const { hint } = ERRORS.queue_unavailable;
  expect(errorBody('queue_unavailable', UNCONFIRMED_MESSAGE)).toEqual({
    statusCode: 503,
    error: 'queue_unavailable',
    message: UNCONFIRMED_MESSAGE,
    hint,
  });
});

describe('ApiError', () => {
  test('takes what it is not told from the catalogue', () => {
    const error = new ApiError('queue_full');
    expect(error).toMatchObject({
      id: 'queue_full',
      message: ERRORS.queue_full.message,
      retryAfterSeconds: ERRORS.queue_full.retryAfterSeconds,
    });
    expect(new ApiError('not_found').retryAfterSeconds).toBeUndefined();
  });

  test('keeps its own message, cause and time to come back', () => {
    const cause = new Error('ECONNREFUSED');
    const error = new ApiError('rate_limited', { message: 'Later.', cause, retryAfterSeconds: 42 });
    expect(error).toMatchObject({ id: 'rate_limited', message: 'Later.', cause, retryAfterSeconds: 42 });
  });
});
