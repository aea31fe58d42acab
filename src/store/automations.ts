import { hash, randomBytes } from 'node:crypto';
import { LruMap } from 'toad-cache';
import { v7 as uuidv7 } from 'uuid';
import type { Action } from '../core/actions/actions.ts';
import { HASH_OF_NO_KEY, hashApiKey, isKeyHash, isKeyWithHash, mintApiKey } from '../core/api-key.ts';
import {
  type Automation,
  type AutomationDefinition,
  isSigned,
  isSlug,
  type OnWorkerLoss,
  type RateLimit,
  type WhenBusy,
} from '../core/automation.ts';
import type { PayloadSchema } from '../core/payload-schema-cost.ts';
import type { RunAttempt } from '../core/run.ts';
import { EVENT_RECEIVERS } from '../core/run-event.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { UNLIMITED_PLACES } from './lanes.ts';
import type { RedisClock } from './redis-clock.ts';
import type { RunStep } from './run-record.ts';
import { TOUCH } from './touch.ts';

/** The part of an automation that accepting a run needs, and the key that opened it. */
export interface TriggeredAutomation {
  id: string;
  slug: string;
  /** Milliseconds since the epoch, or empty, as Redis has it: when it is the same, so is all of this. */
  updatedAt: string;
  /** SHA-256 of the key that opened it; absent for operators, who need no key and have no rate limit. */
  keyHash?: string;
  attempts: number;
  /** Places of its lane: its concurrency limit, or 0 while it is paused; absent if its runs need no place. */
  concurrency?: number;
  whenBusy?: WhenBusy;
  rate?: RateLimit;
  /** Identifies its payload schema, if it has one. */
  schemaHash?: string;
}

/** Without a key, `rejected` means that there is no such automation. */
export type Authentication =
  | { status: 'authenticated'; automation: TriggeredAutomation }
  | { status: 'rejected' }
  | { status: 'disabled' };

/** The part of an automation that a worker needs to execute a run. */
export interface ExecutableAutomation extends Pick<Automation, 'id' | 'enabled' | 'action' | 'onWorkerLoss'> {
  timeoutMs?: number | undefined;
  /** What is sent is signed with each of them: the current one and, in its grace period, the previous one. */
  signingSecrets: string[];
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
  update: `${TOUCH}
    if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
    touch(KEYS[1], ARGV[1])
    redis.call('HSET', KEYS[1], unpack(ARGV, 2))
    return 1`,
  /** The runs that have a place keep it; the worker that takes one parks it. */
  pause: `${TOUCH}
    if redis.call('EXISTS', KEYS[1]) == 0 then return false end
    redis.call('HDEL', KEYS[1], 'resuming')
    if redis.call('HSETNX', KEYS[1], 'pausedAt', ARGV[1]) == 1 then
      if ARGV[2] then redis.call('HSET', KEYS[1], 'pauseReason', ARGV[2]) end
      touch(KEYS[1], ARGV[1])
    end
    return redis.call('HGET', KEYS[1], 'id')`,
  /** Until its lane is empty, new runs wait behind those that were accepted before. */
  resume: `${TOUCH}
    redis.call('HDEL', KEYS[1], 'pauseReason')
    if redis.call('HDEL', KEYS[1], 'pausedAt') == 1 then
      redis.call('HSET', KEYS[1], 'resuming', 1)
      touch(KEYS[1], ARGV[1])
    end
    return redis.call('HGET', KEYS[1], 'id')`,
  replace: `${TOUCH}
    local stored = redis.call('HMGET', KEYS[1], 'id', 'updatedAt')
    if stored[1] ~= ARGV[1] or (stored[2] or ARGV[2]) ~= ARGV[2] then return 'conflict' end
    touch(KEYS[1], ARGV[4])
    for _, field in ipairs(cjson.decode(ARGV[5])) do redis.call('HDEL', KEYS[1], field) end
    redis.call('HSET', KEYS[1], unpack(ARGV, 6))
    if ARGV[3] == '' then
      redis.call('HDEL', KEYS[1], 'signingSecret', 'previousSecret', 'previousSecretEndsAt')
      return 'replaced'
    end
    if redis.call('HSETNX', KEYS[1], 'signingSecret', ARGV[3]) == 1 then return 'signed' end
    return 'replaced'`,
  rotateKey: `${TOUCH}
    local current = redis.call('HGET', KEYS[1], 'keyHash')
    if not current then return 0 end
    touch(KEYS[1], ARGV[2])
    redis.call('HSET', KEYS[1], 'keyHash', ARGV[1], 'keyCreatedAt', ARGV[2])
    if ARGV[3] == ARGV[2] then
      redis.call('HDEL', KEYS[1], 'previousKeyHash', 'previousKeyEndsAt')
    else
      redis.call('HSET', KEYS[1], 'previousKeyHash', current, 'previousKeyEndsAt', ARGV[3])
    end
    return 1`,
  rotateSecret: `${TOUCH}
    local id, current = unpack(redis.call('HMGET', KEYS[1], 'id', 'signingSecret'))
    if not id then return 'not_found' end
    if not current then return 'unsigned' end
    touch(KEYS[1], ARGV[2])
    redis.call('HSET', KEYS[1], 'signingSecret', ARGV[1])
    if ARGV[3] == ARGV[2] then
      redis.call('HDEL', KEYS[1], 'previousSecret', 'previousSecretEndsAt')
    else
      redis.call('HSET', KEYS[1], 'previousSecret', current, 'previousSecretEndsAt', ARGV[3])
    end
    return 'rotated'`,
  remove: `
    if redis.call('DEL', KEYS[1]) == 0 then return 0 end
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('ZADD', KEYS[3], 0, ARGV[1])
    redis.call('HDEL', KEYS[4], ARGV[1])
    redis.call('DEL', KEYS[5])
    local eventQueues, eventTurns, eventFailures, eventBytes, eventDrops = unpack(KEYS, 6)
    for _, queueId in ipairs(cjson.decode(ARGV[2])) do
      redis.call('ZREM', eventQueues, queueId)
      for _, key in ipairs({eventTurns, eventFailures, eventBytes, eventDrops}) do redis.call('HDEL', key, queueId) end
    end
    redis.call('HDEL', eventDrops, ARGV[1])
    redis.call('UNLINK', unpack(KEYS, 11))
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
    'previousKeyEndsAt', 'attempts', 'concurrency', 'rate', 'schemaHash', 'pausedAt', 'resuming', 'whenBusy')
  if fields[1] then return {now, unpack(fields)} end
  return {now, '00000000-0000-0000-0000-000000000000', '1', '1700000000000', '${HASH_OF_NO_KEY}', false, false, '1',
    false, false, false, false, false, false}`;

/**
 * Reads the fields of {@link ExecutableAutomation} and records the start of an attempt in BullMQ's log of the job. If Redis
 * refuses the record, the run is executed all the same. A run of a paused automation is put into its lane instead.
 */
const BEGIN = `
  local fields = redis.call('HMGET', KEYS[1], 'id', 'enabled', 'action', 'timeoutMs', 'onWorkerLoss', 'signingSecret',
    'previousSecret', 'previousSecretEndsAt', 'pausedAt')
  local hasJob = redis.call('EXISTS', KEYS[2]) == 1
  if hasJob and fields[9] and fields[2] == '1' and fields[1] == ARGV[2] then
    redis.pcall('HSET', KEYS[6], ARGV[2], ARGV[4])
    redis.pcall('ZADD', KEYS[4], 0, ARGV[3])
    redis.call('SREM', KEYS[5], ARGV[3])
    return 'paused'
  end
  if hasJob then redis.pcall('RPUSH', KEYS[3], ARGV[1]) end
  return fields`;

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

  /**
   * Stores a new automation and issues its key. An existing automation stays unchanged.
   *
   * @param secrets those that it gets, if they were minted before
   */
  async create(
    definition: AutomationDefinition,
    secrets: MintedSecrets = mintSecrets(),
  ): Promise<({ status: 'created' } & CreatedAutomation) | { status: 'exists' }> {
    const { slug } = definition;
    const id = uuidv7();
    const now = Date.now();
    const { apiKey } = secrets;
    const signingSecret = isSigned(definition) ? secrets.signingSecret : undefined;
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
   * @returns `paused` if the run may not start now: it is in its lane, and has to be parked
   */
  async begin(
    { id: runId, automation: slug, automationId }: Pick<RunAttempt, 'id' | 'automation' | 'automationId'>,
    jobKey: string,
    start: RunStep,
  ): Promise<ExecutableAutomation | 'paused' | undefined> {
    const { automation, lane, laneRunning, lanes } = this.#keys;
    const ownKeys = [automation(slug), jobKey, `${jobKey}:logs`];
    const keys = [...ownKeys, lane(automationId), laneRunning(automationId), lanes];
    const values = [JSON.stringify(start), automationId, runId, slug];
    const fields = (await this.#redis.eval(BEGIN, keys.length, ...keys, ...values)) as Reply | 'paused';
    if (fields === 'paused') return fields;
    const [id, enabled, action, timeoutMs, onWorkerLoss, ...secrets] = fields;
    if (!id || !action) return undefined;
    return {
      id,
      enabled: enabled === '1',
      action: JSON.parse(action) as Action,
      timeoutMs: timeoutMs ? Number(timeoutMs) : undefined,
      onWorkerLoss: decodeOnWorkerLoss(onWorkerLoss),
      signingSecrets: validSecrets(secrets),
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

  async count(): Promise<number> {
    return this.#redis.zcard(this.#keys.automations);
  }

  /** Slugs that begin with a text of lower-case letters, digits and hyphens, in their order, behind another one. */
  async slugsFrom(prefix: string, after: string, limit: number): Promise<string[]> {
    const first = after >= prefix && after !== '' ? `(${after}` : `[${prefix}`;
    return this.#redis.zrangebylex(
      this.#keys.automations,
      prefix === '' && after === '' ? '-' : first,
      prefix === '' ? '+' : `(${prefix}~`,
      'LIMIT',
      0,
      limit,
    );
  }

  async slugs(): Promise<string[]> {
    return this.#redis.zrangebylex(this.#keys.automations, '-', '+');
  }

  /** @returns false when there is no such automation */
  async setEnabled(slug: string, enabled: boolean): Promise<boolean> {
    const fields = ['enabled', enabled ? 1 : 0];
    const key = this.#keys.automation(slug);
    return (await this.#redis.eval(SCRIPTS.update, 1, key, Date.now(), ...fields)) === 1;
  }

  /**
   * Pauses an automation, or resumes it: while it is paused, its runs are accepted and wait. After a resume, `RunLanes.release`
   * starts them at once.
   *
   * @param reason why, if no operator pauses it: a sentence
   * @returns its id; undefined when there is no such automation
   */
  async setPaused(slug: string, paused: boolean, reason?: string): Promise<string | undefined> {
    const script = paused ? SCRIPTS.pause : SCRIPTS.resume;
    const id = await this.#redis.eval(
      script,
      1,
      this.#keys.automation(slug),
      Date.now(),
      ...(reason === undefined ? [] : [reason]),
    );
    return (id as string | null) ?? undefined;
  }

  /**
   * Replaces an automation's definition. Its id, its keys and, while it signs what it sends, its signing secret stay.
   *
   * @param seen the automation as the operator saw it; one that has changed since stays unchanged
   * @param secrets the signing secret that it gets if it has none, if it was minted before
   */
  async replace(
    seen: Automation,
    definition: AutomationDefinition,
    secrets: Pick<MintedSecrets, 'signingSecret'> = mintSecrets(),
  ): Promise<{ status: 'replaced'; signingSecret?: string } | { status: 'conflict' }> {
    const signingSecret = isSigned(definition) ? secrets.signingSecret : '';
    const expected = [seen.id, seen.updatedAt.getTime()];
    const fields = encode(definition);
    const absent = Object.keys(fields).filter((field) => fields[field] === undefined);
    const changes = [signingSecret, Date.now(), JSON.stringify(absent), ...fieldsAndValues(fields)];
    const key = this.#keys.automation(seen.slug);
    const replaced = await this.#redis.eval(SCRIPTS.replace, 1, key, ...expected, ...changes);
    if (replaced === 'conflict') return { status: 'conflict' };
    return { status: 'replaced', ...(replaced === 'signed' && { signingSecret }) };
  }

  /** Deletes an automation, its keys and its events that wait; its runs stay readable. @returns false when there is no such automation */
  async delete(slug: string): Promise<boolean> {
    const { automation, automations, formerAutomations, lastSuccess, rejections } = this.#keys;
    const { eventQueues, eventTurns, eventFailures, eventBytes, eventDrops } = this.#keys;
    const { eventQueue, eventBodies, eventTries } = this.#keys;
    const keys = [
      ...[automation(slug), automations, formerAutomations, lastSuccess, rejections(slug)],
      ...[eventQueues, eventTurns, eventFailures, eventBytes, eventDrops],
      ...EVENT_RECEIVERS.flatMap((receiver) =>
        [eventQueue, eventBodies, eventTries].map((key) => key(slug, receiver)),
      ),
    ];
    const queueIds = JSON.stringify(EVENT_RECEIVERS.map((receiver) => `${slug}:${receiver}`));
    return (await this.#redis.eval(SCRIPTS.remove, keys.length, ...keys, slug, queueIds)) === 1;
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
   * Issues a new signing secret. For the grace period, what is sent is signed with the current one, too, so that receivers
   * can change over; an older one that is still in its grace period is not used any more.
   *
   * @param graceMs in milliseconds; 0 stops signing with the current one at once
   */
  async rotateSecret(
    slug: string,
    graceMs: number,
  ): Promise<
    | { status: 'rotated'; signingSecret: string; previousSecretEndsAt: Date }
    | { status: 'not_found' }
    | { status: 'unsigned' }
  > {
    const signingSecret = mintSigningSecret();
    const now = Date.now();
    const endsAt = now + graceMs;
    const key = this.#keys.automation(slug);
    const status = await this.#redis.eval(SCRIPTS.rotateSecret, 1, key, signingSecret, now, endsAt);
    if (status !== 'rotated') return { status: status as 'not_found' | 'unsigned' };
    return { status, signingSecret, previousSecretEndsAt: new Date(endsAt) };
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
    const [id, enabled, updatedAt, currentHash, previousHash, previousEndsAt, ...definition] = fields;
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
        ...(keyHash !== undefined && { keyHash }),
        ...decodeTriggered(definition),
      };
      if (keyHash !== undefined) this.#confirmed.set(slug, automation);
      return { status: 'authenticated', automation };
    }
    if (this.#confirmed.get(slug)?.keyHash === keyHash) this.#confirmed.delete(slug);
    return { status: isOpen && id ? 'disabled' : 'rejected' };
  }
}

/** How many runs of an automation may have a place at the same time; undefined if they need none. */
function placesOf(fields: Record<'concurrency' | 'pausedAt' | 'resuming', string | null | undefined>) {
  if (fields.pausedAt) return 0;
  if (fields.concurrency) return Number(fields.concurrency);
  return fields.resuming ? UNLIMITED_PLACES : undefined;
}

/** A Standard Webhooks secret: `whsec_` and 24 to 64 random bytes in base64 (standardwebhooks.com, "Signatures"). */
/** Secrets that no automation has yet. */
export interface MintedSecrets {
  apiKey: string;
  signingSecret: string;
}

export function mintSecrets(): MintedSecrets {
  return { apiKey: mintApiKey(), signingSecret: mintSigningSecret() };
}

function mintSigningSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

/** @param fields a signing secret, the one before it, and until when that is used */
function validSecrets([current, previous, previousEndsAt]: Reply): string[] {
  const isInGrace = previous && Number(previousEndsAt) > Date.now();
  return [...(current ? [current] : []), ...(isInGrace ? [previous] : [])];
}

type Fields = Record<string, string | number | undefined>;
type Reply = (string | null)[];

/** A definition as the fields of its automation's Redis hash. */
function encode({ rate, schema, ...definition }: AutomationDefinition): Fields {
  const schemaText = schema && JSON.stringify(schema);
  return {
    name: definition.name,
    enabled: definition.enabled ? 1 : 0,
    action: JSON.stringify(definition.action),
    timeoutMs: definition.timeoutMs,
    attempts: definition.attempts,
    concurrency: definition.concurrency,
    whenBusy: definition.whenBusy,
    keepRuns: definition.keepRuns,
    rate: rate && `${rate.limit}/${rate.windowMs}`,
    onWorkerLoss: definition.onWorkerLoss,
    onEnd: definition.onEnd,
    onFailure: definition.onFailure,
    schema: schemaText,
    schemaHash: schemaText && hash('sha256', schemaText, 'base64url'),
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
    whenBusy,
    schema,
    createdAt = '0',
    updatedAt = createdAt,
    keyCreatedAt = createdAt,
    previousKeyEndsAt = '0',
    previousSecretEndsAt = '0',
    signingSecret,
    onEnd,
    onFailure,
    pausedAt,
    pauseReason,
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
    ...(whenBusy && { whenBusy: whenBusy as WhenBusy }),
    ...(keepRuns && { keepRuns: Number(keepRuns) }),
    ...(rate && { rate: decodeRate(rate) }),
    ...(schema && { schema: JSON.parse(schema) as PayloadSchema }),
    ...(Number(previousKeyEndsAt) > Date.now() && { previousKeyEndsAt: new Date(Number(previousKeyEndsAt)) }),
    ...(Number(previousSecretEndsAt) > Date.now() && {
      previousSecretEndsAt: new Date(Number(previousSecretEndsAt)),
    }),
    ...(signingSecret && { signingSecret }),
    ...(onEnd && { onEnd }),
    ...(onFailure && { onFailure }),
    ...(pausedAt && { pausedAt: new Date(Number(pausedAt)) }),
    ...(pausedAt && pauseReason && { pauseReason }),
  };
}

/** The last fields of {@link CREDENTIALS}. */
function decodeTriggered([attempts, concurrency, rate, schemaHash, pausedAt, resuming, whenBusy]: Reply) {
  const places = placesOf({ concurrency, pausedAt, resuming });
  return {
    attempts: Number(attempts),
    ...(places !== undefined && { concurrency: places }),
    ...(rate && { rate: decodeRate(rate) }),
    ...(schemaHash && { schemaHash }),
    ...(whenBusy && { whenBusy: whenBusy as WhenBusy }),
  };
}

function decodeOnWorkerLoss(text: string | null = null): OnWorkerLoss {
  return (text ?? 'rerun') as OnWorkerLoss;
}

function decodeRate(text: string): RateLimit {
  const [limit, windowMs] = text.split('/');
  return { limit: Number(limit), windowMs: Number(windowMs) };
}
