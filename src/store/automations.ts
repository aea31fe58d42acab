import { randomBytes } from 'node:crypto';
import { LruMap } from 'toad-cache';
import { v7 as uuidv7 } from 'uuid';
import { type Action, actionTypeOf } from '../core/actions/actions.ts';
import { HASH_OF_NO_KEY, hashApiKey, isKeyHash, isKeyWithHash, mintApiKey } from '../core/api-key.ts';
import {
  type Automation,
  type AutomationDefinition,
  isSlug,
  type OnWorkerLoss,
  type RateLimit,
} from '../core/automation.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { RedisClock } from './redis-clock.ts';
import type { RunStep } from './run-record.ts';

/** The part of an automation that accepting a run needs, and the key that opened it. */
export interface TriggeredAutomation {
  id: string;
  slug: string;
  /** Milliseconds since the epoch, or empty, as Redis has it: when it is the same, so is all of this. */
  updatedAt: string;
  /** SHA-256 of the key that opened it; absent for operators, who need no key and have no rate limit. */
  keyHash?: string;
  attempts: number;
  concurrency?: number;
  rate?: RateLimit;
}

/** Without a key, `rejected` means that there is no such automation. */
export type Authentication =
  | { status: 'authenticated'; automation: TriggeredAutomation }
  | { status: 'rejected' }
  | { status: 'disabled' };

/** The part of an automation that a worker needs to execute a run. */
export interface ExecutableAutomation extends Pick<Automation, 'id' | 'enabled' | 'action' | 'onWorkerLoss'> {
  timeoutMs?: number | undefined;
  signingSecret?: string | undefined;
}

type StoredAutomation = Automation & { signingSecret?: string };

export interface CreatedAutomation {
  automation: Automation;
  /** Not stored, so shown only once. */
  apiKey: string;
  /** Of an automation that signs what it sends: the Standard Webhooks secret its receiver verifies with. */
  signingSecret?: string;
}

/** Each script changes one automation atomically, and only if it exists (or, for `create`, does not). */
const SCRIPTS = {
  create: `
    if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
    redis.call('HSET', KEYS[1], unpack(ARGV, 2))
    redis.call('ZADD', KEYS[2], 0, ARGV[1])
    return 1`,
  update: `
    if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
    redis.call('HSET', KEYS[1], unpack(ARGV))
    return 1`,
  replace: `
    local stored = redis.call('HMGET', KEYS[1], 'id', 'updatedAt')
    if stored[1] ~= ARGV[1] or (stored[2] or ARGV[2]) ~= ARGV[2] then return 'conflict' end
    redis.call('HDEL', KEYS[1], 'timeoutMs', 'concurrency', 'rate', 'keepRuns')
    redis.call('HSET', KEYS[1], unpack(ARGV, 4))
    if ARGV[3] == '' then redis.call('HDEL', KEYS[1], 'signingSecret') return 'replaced' end
    if redis.call('HSETNX', KEYS[1], 'signingSecret', ARGV[3]) == 1 then return 'signed' end
    return 'replaced'`,
  rotateKey: `
    local current = redis.call('HGET', KEYS[1], 'keyHash')
    if not current then return 0 end
    redis.call('HSET', KEYS[1], 'keyHash', ARGV[1], 'keyCreatedAt', ARGV[2], 'updatedAt', ARGV[2])
    if ARGV[3] == ARGV[2] then
      redis.call('HDEL', KEYS[1], 'previousKeyHash', 'previousKeyEndsAt')
    else
      redis.call('HSET', KEYS[1], 'previousKeyHash', current, 'previousKeyEndsAt', ARGV[3])
    end
    return 1`,
  remove: `
    if redis.call('DEL', KEYS[1]) == 0 then return 0 end
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('ZADD', KEYS[3], 0, ARGV[1])
    redis.call('HDEL', KEYS[4], ARGV[1])
    redis.call('DEL', KEYS[5])
    return 1`,
} as const;

/**
 * The fields that the check of a key needs. For an unknown slug it returns those of an automation without a key: the reply
 * has the same length, and takes the same work, as for a wrong key.
 */
const CREDENTIALS = `
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local fields = redis.call('HMGET', KEYS[1], 'id', 'enabled', 'updatedAt', 'keyHash', 'previousKeyHash',
    'previousKeyEndsAt', 'attempts', 'concurrency', 'rate')
  if fields[1] then return {now, unpack(fields)} end
  return {now, '00000000-0000-0000-0000-000000000000', '1', '1700000000000', '${HASH_OF_NO_KEY}', false, false, '1',
    false, false}`;

/**
 * Reads the fields of {@link ExecutableAutomation} and records the start of an attempt in BullMQ's log of the job. If Redis
 * refuses the record, the run is executed all the same.
 */
const BEGIN = `
  if redis.call('EXISTS', KEYS[2]) == 1 then redis.pcall('RPUSH', KEYS[3], ARGV[1]) end
  return redis.call('HMGET', KEYS[1], 'id', 'enabled', 'action', 'timeoutMs', 'onWorkerLoss', 'signingSecret')`;

/** Number of cached automations; the least recently triggered are dropped first. */
const MAX_CONFIRMED = 1000;

/** Automations and the hashes of their keys. Only Redis decides: every change applies from the next request on. */
export class AutomationStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #clock: RedisClock;
  readonly #confirmed = new LruMap<TriggeredAutomation>(MAX_CONFIRMED);

  constructor(redis: RedisClient, keys: Keys, clock: RedisClock) {
    this.#redis = redis;
    this.#keys = keys;
    this.#clock = clock;
  }

  /** Stores a new automation and issues its key. An existing automation stays unchanged. */
  async create(
    definition: AutomationDefinition,
  ): Promise<({ status: 'created' } & CreatedAutomation) | { status: 'exists' }> {
    const { slug, action } = definition;
    const id = uuidv7();
    const now = Date.now();
    const apiKey = mintApiKey();
    const signingSecret = actionTypeOf(action).isSigned ? mintSigningSecret() : undefined;
    const keyHash = hashApiKey(apiKey);
    const times = { createdAt: now, updatedAt: now, keyCreatedAt: now };
    const fields = fieldsAndValues({ ...encode(definition), id, ...times, keyHash, signingSecret });
    const keys = [this.#keys.automation(slug), this.#keys.automations];
    const created = await this.#redis.eval(SCRIPTS.create, keys.length, ...keys, slug, ...fields);
    if (created === 0) return { status: 'exists' };
    const time = new Date(now);
    const automation = { ...definition, id, createdAt: time, updatedAt: time, keyCreatedAt: time };
    return { status: 'created', automation, apiKey, ...(signingSecret !== undefined && { signingSecret }) };
  }

  async get(slug: string): Promise<StoredAutomation | undefined> {
    return decode(slug, await this.#redis.hgetall(this.#keys.automation(slug)));
  }

  /**
   * Reads what a worker needs for an attempt at a run, and records the start of the attempt.
   *
   * @param jobKey where BullMQ keeps the run
   */
  async begin(slug: string, jobKey: string, start: RunStep): Promise<ExecutableAutomation | undefined> {
    const keys = [this.#keys.automation(slug), jobKey, `${jobKey}:logs`];
    const fields = (await this.#redis.eval(BEGIN, keys.length, ...keys, JSON.stringify(start))) as Reply;
    const [id, enabled, action, timeoutMs, onWorkerLoss, signingSecret] = fields;
    if (!id || !action) return undefined;
    return {
      id,
      enabled: enabled === '1',
      action: JSON.parse(action) as Action,
      timeoutMs: timeoutMs ? Number(timeoutMs) : undefined,
      onWorkerLoss: decodeOnWorkerLoss(onWorkerLoss),
      signingSecret: signingSecret ?? undefined,
    };
  }

  /** All automations, by slug. */
  async list(): Promise<Automation[]> {
    const slugs = await this.slugs();
    const found = await Promise.all(slugs.map((slug) => this.get(slug)));
    return found.flatMap((automation) => {
      if (!automation) return [];
      const { signingSecret: _, ...readable } = automation;
      return [readable];
    });
  }

  async slugs(): Promise<string[]> {
    return this.#redis.zrangebylex(this.#keys.automations, '-', '+');
  }

  /** @returns false when there is no such automation */
  async setEnabled(slug: string, enabled: boolean): Promise<boolean> {
    const fields = fieldsAndValues({ enabled: enabled ? 1 : 0, updatedAt: Date.now() });
    return (await this.#redis.eval(SCRIPTS.update, 1, this.#keys.automation(slug), ...fields)) === 1;
  }

  /**
   * Replaces an automation's definition. Its id, its keys and, while it delivers to a URL, its signing secret stay.
   *
   * @param seen the automation as the operator saw it; one that has changed since stays unchanged
   */
  async replace(
    seen: Automation,
    definition: AutomationDefinition,
  ): Promise<{ status: 'replaced'; signingSecret?: string } | { status: 'conflict' }> {
    const signingSecret = actionTypeOf(definition.action).isSigned ? mintSigningSecret() : '';
    const expected = [seen.id, seen.updatedAt.getTime()];
    const fields = fieldsAndValues({ ...encode(definition), updatedAt: Date.now() });
    const key = this.#keys.automation(seen.slug);
    const replaced = await this.#redis.eval(SCRIPTS.replace, 1, key, ...expected, signingSecret, ...fields);
    if (replaced === 'conflict') return { status: 'conflict' };
    return { status: 'replaced', ...(replaced === 'signed' && { signingSecret }) };
  }

  /** Deletes an automation and its keys; its runs stay readable. @returns false when there is no such automation */
  async delete(slug: string): Promise<boolean> {
    const { automation, automations, formerAutomations, lastSuccess, rejections } = this.#keys;
    const keys = [automation(slug), automations, formerAutomations, lastSuccess, rejections(slug)];
    return (await this.#redis.eval(SCRIPTS.remove, keys.length, ...keys, slug)) === 1;
  }

  /**
   * Issues a new key. The current key stays valid for the grace period, in which callers change over; an older key that is
   * still in its grace period becomes invalid at once.
   *
   * @param graceMs how long the current key stays valid, in milliseconds; 0 revokes it at once
   */
  async rotateKey(
    slug: string,
    graceMs: number,
  ): Promise<{ status: 'rotated'; apiKey: string; previousKeyEndsAt: Date } | { status: 'not_found' }> {
    const apiKey = mintApiKey();
    const now = Date.now();
    const endsAt = now + graceMs;
    const key = this.#keys.automation(slug);
    const rotated = await this.#redis.eval(SCRIPTS.rotateKey, 1, key, hashApiKey(apiKey), now, endsAt);
    if (rotated === 0) return { status: 'not_found' };
    return { status: 'rotated', apiKey, previousKeyEndsAt: new Date(endsAt) };
  }

  /**
   * Checks a key against a slug; tells only holders of the key whether the automation is enabled. An unknown or malformed
   * slug takes the same steps as a wrong key.
   */
  authenticate(slug: string, apiKey: string): Promise<Authentication> {
    return this.#authenticate(slug, hashApiKey(apiKey));
  }

  /** The automation of a slug, for operators, who need no key. */
  async open(slug: string): Promise<Authentication> {
    return this.#authenticate(slug, undefined);
  }

  /** Repeats {@link authenticate} or {@link open} for an automation. */
  reopen({ slug, keyHash }: TriggeredAutomation): Promise<Authentication> {
    return this.#authenticate(slug, keyHash);
  }

  /**
   * The automation that a key opened when Redis last confirmed it. A request may be tried with it; Redis decides. Takes the
   * same work for known and unknown slugs.
   */
  recall(slug: string, apiKey: string): TriggeredAutomation | undefined {
    const known = this.#confirmed.get(slug);
    return isKeyWithHash(apiKey, known?.keyHash ?? HASH_OF_NO_KEY) ? known : undefined;
  }

  async #authenticate(slug: string, keyHash: string | undefined): Promise<Authentication> {
    const key = this.#keys.automation(isSlug(slug) ? slug : '');
    const credentials = await this.#redis.eval(CREDENTIALS, 1, key);
    const [now, ...fields] = credentials as [number, ...Reply];
    const [id, enabled, updatedAt, currentHash, previousHash, previousEndsAt, attempts, concurrency, rate] =
      fields;
    this.#clock.told(now);
    const stored = {
      currentHash: currentHash ?? HASH_OF_NO_KEY,
      ...(previousHash && { previousHash, previousEndsAt: Number(previousEndsAt) }),
    };
    // Operators need no key, but the automation must exist.
    const isOpen = keyHash === undefined ? currentHash !== HASH_OF_NO_KEY : isKeyHash(keyHash, stored, now);
    if (isOpen && id && enabled === '1') {
      const automation: TriggeredAutomation = {
        id,
        slug,
        updatedAt: updatedAt ?? '',
        attempts: Number(attempts),
        ...(keyHash !== undefined && { keyHash }),
        ...(concurrency && { concurrency: Number(concurrency) }),
        ...(rate && { rate: decodeRate(rate) }),
      };
      if (keyHash !== undefined) this.#confirmed.set(slug, automation);
      return { status: 'authenticated', automation };
    }
    if (this.#confirmed.get(slug)?.keyHash === keyHash) this.#confirmed.delete(slug);
    return { status: isOpen && id ? 'disabled' : 'rejected' };
  }
}

/** A Standard Webhooks secret: `whsec_` and 24 to 64 random bytes in base64 (standardwebhooks.com, "Signatures"). */
function mintSigningSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

type Fields = Record<string, string | number | undefined>;
type Reply = (string | null)[];

/** A definition as the fields of its automation's Redis hash. */
function encode({ rate, ...definition }: AutomationDefinition): Fields {
  return {
    name: definition.name,
    enabled: definition.enabled ? 1 : 0,
    action: JSON.stringify(definition.action),
    timeoutMs: definition.timeoutMs,
    attempts: definition.attempts,
    concurrency: definition.concurrency,
    keepRuns: definition.keepRuns,
    rate: rate && `${rate.limit}/${rate.windowMs}`,
    onWorkerLoss: definition.onWorkerLoss,
  };
}

function fieldsAndValues(fields: Fields): string[] {
  return Object.entries(fields).flatMap(([field, value]) =>
    value === undefined ? [] : [field, String(value)],
  );
}

/** The inverse of {@link encode}. Fields that an older version did not write get defaults. */
function decode(slug: string, fields: Record<string, string>): StoredAutomation | undefined {
  const {
    id,
    name = '',
    enabled,
    action,
    timeoutMs,
    attempts = '1',
    concurrency,
    rate,
    keepRuns,
    onWorkerLoss,
    createdAt = '0',
    updatedAt = createdAt,
    keyCreatedAt = createdAt,
    previousKeyEndsAt = '0',
    signingSecret,
  } = fields;
  if (!id || !action) return undefined;
  return {
    id,
    slug,
    name,
    enabled: enabled === '1',
    action: JSON.parse(action) as Action,
    attempts: Number(attempts),
    onWorkerLoss: decodeOnWorkerLoss(onWorkerLoss),
    createdAt: new Date(Number(createdAt)),
    updatedAt: new Date(Number(updatedAt)),
    keyCreatedAt: new Date(Number(keyCreatedAt)),
    ...(timeoutMs && { timeoutMs: Number(timeoutMs) }),
    ...(concurrency && { concurrency: Number(concurrency) }),
    ...(keepRuns && { keepRuns: Number(keepRuns) }),
    ...(rate && { rate: decodeRate(rate) }),
    ...(Number(previousKeyEndsAt) > Date.now() && { previousKeyEndsAt: new Date(Number(previousKeyEndsAt)) }),
    ...(signingSecret && { signingSecret }),
  };
}

function decodeOnWorkerLoss(text: string | null = null): OnWorkerLoss {
  return (text ?? 'rerun') as OnWorkerLoss;
}

function decodeRate(text: string): RateLimit {
  const [limit, windowMs] = text.split('/');
  return { limit: Number(limit), windowMs: Number(windowMs) };
}
