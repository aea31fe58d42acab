import { createHash } from 'node:crypto';
import type { TerminalRunStatus } from '../core/run.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { RunJobData, Transaction } from './queue.ts';

/** How long a key leads back to its run, in milliseconds, however long runs are kept. */
const WINDOW_MS = 86_400_000;

/** How long a key is held for a request that has not led to a run yet, in milliseconds: longer than any may take. */
const RESERVATION_MS = 120_000;

/** Reserves a key for a run, unless it is taken; returns what is stored then. */
const RESERVE = `
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.call('HMGET', KEYS[1], 'runId', 'payloadHash', 'accepted', 'status')
  end
  redis.call('HSET', KEYS[1], 'runId', ARGV[1], 'payloadHash', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return false`;

/** Frees a key that was reserved for a run that has not been accepted. */
const RELEASE = `
  local runId, accepted = unpack(redis.call('HMGET', KEYS[1], 'runId', 'accepted'))
  if runId == ARGV[1] and not accepted then redis.call('DEL', KEYS[1]) end`;

/** Notes how a run ended, if its key is still known. */
const SETTLE = `if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'status', ARGV[1]) end`;

/** A request that names an idempotency key, as it is stored: neither the key nor the payload is. */
export interface IdempotentRequest {
  automationId: string;
  /** SHA-256 of the key. */
  keyHash: string;
  /** SHA-256 of the payload's bytes. */
  payloadHash: string;
}

/** The run that an idempotency key stands for. */
export interface IdempotencyRecord {
  runId: string;
  payloadHash: string;
  /** False while it is not known whether the run got into the queue. */
  accepted: boolean;
  /** Final status of a run that has ended, for when the run itself is no longer kept. */
  status?: TerminalRunStatus;
}

/** @param key the value of the header `Idempotency-Key` */
export function idempotentRequest(automationId: string, key: string, payload: string): IdempotentRequest {
  return { automationId, keyHash: sha256(key), payloadHash: sha256(payload) };
}

/**
 * Idempotency keys, in the spirit of the IETF draft "The Idempotency-Key HTTP Header Field": the first request with a
 * key makes a run, and any other within the window leads to that same run.
 */
export class IdempotencyStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  async find(request: IdempotentRequest): Promise<IdempotencyRecord | undefined> {
    return decode(
      await this.#redis.hmget(this.#keyOf(request), 'runId', 'payloadHash', 'accepted', 'status'),
    );
  }

  /**
   * Ties the key to a run that is about to be enqueued, for as long as that may take.
   *
   * @returns what the key already stands for, if another request was first
   */
  async reserve(request: IdempotentRequest, runId: string): Promise<IdempotencyRecord | undefined> {
    const key = this.#keyOf(request);
    const taken = await this.#redis.eval(RESERVE, 1, key, runId, request.payloadHash, RESERVATION_MS);
    return taken ? decode(taken as (string | null)[]) : undefined;
  }

  /** Frees a key whose run was not accepted after all. */
  async release(request: IdempotentRequest, runId: string): Promise<void> {
    await this.#redis.eval(RELEASE, 1, this.#keyOf(request), runId);
  }

  /** Adds to the transaction that enqueues the run what makes the key known for the whole window. */
  confirm(transaction: Transaction, request: IdempotentRequest, runId: string): void {
    const key = this.#keyOf(request);
    const { payloadHash } = request;
    transaction.hset(key, { runId, payloadHash, accepted: 1 });
    transaction.runCommand('pexpire', [key, WINDOW_MS]);
  }

  /** Remembers how a run that was accepted with a key ended, beyond the time that the run is kept. */
  async settle({ automationId, idempotency }: RunJobData, status: TerminalRunStatus): Promise<void> {
    if (idempotency === undefined) return;
    await this.#redis.eval(SETTLE, 1, this.#keys.idempotency(automationId, idempotency), status);
  }

  #keyOf({ automationId, keyHash }: IdempotentRequest): string {
    return this.#keys.idempotency(automationId, keyHash);
  }
}

function decode([runId, payloadHash, accepted, status]: (string | null)[]): IdempotencyRecord | undefined {
  if (!runId || !payloadHash) return undefined;
  return {
    runId,
    payloadHash,
    accepted: accepted === '1',
    ...(status && { status: status as TerminalRunStatus }),
  };
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}
