import { createHash, randomBytes, randomUUID } from 'node:crypto';
import type { Operator, OperatorRole } from '../core/operator.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** How long a login link is valid, in milliseconds. */
const LINK_MS = 15 * 60_000;

/** A session ends after so long without a request, and after so long in any case, in milliseconds. */
const SESSION_IDLE_MS = 12 * 3_600_000;
export const SESSION_MAX_MS = 7 * 86_400_000;

/** A session's end is moved at most this often, in milliseconds: most requests only read. */
const SESSION_TOUCH_MS = 60_000;

/** Sessions of one operator at the same time; a login beyond it ends the oldest. */
const MAX_SESSIONS = 20;

/** 256 random bits in base64url. */
const TOKEN = /^[A-Za-z0-9_-]{43}$/;

export interface StoredOperator extends Operator {
  createdAt: Date;
}

/** From where a session was begun. */
export interface SessionOrigin {
  address: string;
  userAgent: string;
}

export interface OperatorSession extends SessionOrigin {
  /** Beginning of the hash of its token: names it, and opens nothing. */
  id: string;
  createdAt: Date;
  /** To the minute. */
  lastSeenAt: Date;
  endsAt: Date;
}

/** `id` tells apart operators who had the same name one after the other. */
interface OperatorRecord {
  id: string;
  role: OperatorRole;
  createdAt: number;
}

/** Reads a session and, if asked to, moves its idle end. */
const READ_SESSION = `
  local name, id, createdAt = unpack(redis.call('HMGET', KEYS[1], 'name', 'operatorId', 'createdAt'))
  if not name then return false end
  if ARGV[1] == '1' then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local left = math.min(tonumber(ARGV[2]), createdAt + ARGV[3] - now)
    if left <= 0 then
      redis.call('DEL', KEYS[1])
      return false
    end
    if redis.call('PTTL', KEYS[1]) < left - ARGV[4] then
      redis.call('PEXPIRE', KEYS[1], left)
      redis.call('HSET', KEYS[1], 'lastSeenAt', now)
    end
  end
  return {name, id, redis.call('HGET', KEYS[2], name)}`;

/**
 * The operators of the console, their login links and sessions. Of a link and a session Redis has the SHA-256 of the token
 * only, and its expiry ends them.
 */
export class OperatorStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** @returns false when there is an operator of this name, who stays as before */
  async add(name: string, role: OperatorRole): Promise<boolean> {
    const record: OperatorRecord = { id: randomUUID(), role, createdAt: Date.now() };
    return (await this.#redis.hsetnx(this.#keys.operators, name, JSON.stringify(record))) === 1;
  }

  async get(name: string): Promise<StoredOperator | undefined> {
    const record = await this.#record(name);
    return record && toOperator(name, record);
  }

  /** All operators, by name. */
  async list(): Promise<StoredOperator[]> {
    const records = await this.#redis.hgetall(this.#keys.operators);
    return Object.entries(records)
      .map(([name, text]) => toOperator(name, JSON.parse(text) as OperatorRecord))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async count(): Promise<number> {
    return this.#redis.hlen(this.#keys.operators);
  }

  /** Removes an operator; the sessions and links end at once. @returns false when there is none of this name */
  async remove(name: string): Promise<boolean> {
    const removed = await this.#redis.hdel(this.#keys.operators, name);
    await this.endSessions(name);
    return removed === 1;
  }

  /**
   * Makes a link's token, which logs the operator in once.
   *
   * @returns undefined when there is no operator of this name
   */
  async createLink(name: string): Promise<{ token: string; expiresAt: Date } | undefined> {
    const record = await this.#record(name);
    if (!record) return undefined;
    const token = mintToken();
    const link = JSON.stringify({ name, id: record.id });
    await this.#redis.set(this.#keys.loginLink(hashToken(token)), link, 'PX', LINK_MS);
    return { token, expiresAt: new Date(Date.now() + LINK_MS) };
  }

  /**
   * Uses up a link and begins a session.
   *
   * @returns undefined when the link was used, has expired, never was, or its operator is removed
   */
  async login(
    linkToken: string,
    origin: SessionOrigin,
  ): Promise<{ operator: Operator; token: string } | undefined> {
    if (!TOKEN.test(linkToken)) return undefined;
    const link = await this.#redis.getdel(this.#keys.loginLink(hashToken(linkToken)));
    if (link === null) return undefined;
    const { name, id } = JSON.parse(link) as { name: string; id: string };
    const record = await this.#record(name);
    if (record?.id !== id) return undefined;
    return { operator: { name, role: record.role }, token: await this.#begin(name, id, origin) };
  }

  /**
   * The operator of a session.
   *
   * @param isActivity whether this keeps the session from ending idle; not what a page asks by itself
   * @returns undefined when it has ended, or its operator is removed
   */
  async ofSession(token: string, isActivity: boolean): Promise<Operator | undefined> {
    if (!TOKEN.test(token)) return undefined;
    const keys = [this.#keys.session(hashToken(token)), this.#keys.operators];
    const options = [isActivity ? 1 : 0, SESSION_IDLE_MS, SESSION_MAX_MS, SESSION_TOUCH_MS];
    const found = await this.#redis.eval(READ_SESSION, keys.length, ...keys, ...options);
    const [name, id, text] = (found ?? []) as (string | null)[];
    if (!name || !text) return undefined;
    const record = JSON.parse(text) as OperatorRecord;
    return record.id === id ? { name, role: record.role } : undefined;
  }

  /** Ends one session, as a logout does. */
  async endSession(token: string): Promise<void> {
    await this.#redis.del(this.#keys.session(hashToken(token)));
    await this.#noteEnd();
  }

  /** Ends all sessions of an operator. @returns how many there were */
  async endSessions(name: string): Promise<number> {
    const key = this.#keys.sessionsOf(name);
    const hashes = await this.#redis.zrange(key, '0', '-1');
    const sessions = hashes.map((hash) => this.#keys.session(hash));
    const count = (await this.#redis.del(key, ...sessions)) - Math.min(hashes.length, 1);
    // Also without a session: who is removed may be logged in by single sign-on.
    await this.#noteEnd();
    return count;
  }

  /** Is another text whenever sessions were ended before their time: those of open streams are to be judged again then. */
  async sessionsEnded(): Promise<string> {
    return (await this.#redis.get(this.#keys.endedSessions)) ?? '0';
  }

  /** The sessions of an operator, the latest first. */
  async sessions(name: string): Promise<OperatorSession[]> {
    const hashes = await this.#redis.zrange(this.#keys.sessionsOf(name), '0', '-1');
    const found = await Promise.all(
      hashes.map(async (hash) => {
        const key = this.#keys.session(hash);
        const [fields, leftMs] = await Promise.all([this.#redis.hgetall(key), this.#redis.pttl(key)]);
        if (leftMs <= 0) return [];
        return [
          {
            id: hash.slice(0, 12),
            address: fields['address'] ?? '',
            userAgent: fields['userAgent'] ?? '',
            createdAt: new Date(Number(fields['createdAt'])),
            lastSeenAt: new Date(Number(fields['lastSeenAt'])),
            endsAt: new Date(Date.now() + leftMs),
          },
        ];
      }),
    );
    return found.flat().reverse();
  }

  async #record(name: string): Promise<OperatorRecord | undefined> {
    const text = await this.#redis.hget(this.#keys.operators, name);
    return text === null ? undefined : (JSON.parse(text) as OperatorRecord);
  }

  async #noteEnd(): Promise<void> {
    await this.#redis.incr(this.#keys.endedSessions);
  }

  async #begin(name: string, operatorId: string, { address, userAgent }: SessionOrigin): Promise<string> {
    const token = mintToken();
    const hash = hashToken(token);
    const now = Date.now();
    const key = this.#keys.session(hash);
    const index = this.#keys.sessionsOf(name);
    const fields = { name, operatorId, createdAt: now, lastSeenAt: now, address, userAgent };
    await this.#redis
      .multi()
      .hset(key, fields)
      .pexpire(key, SESSION_IDLE_MS)
      .zremrangebyscore(index, '-inf', now - SESSION_MAX_MS)
      .zadd(index, now, hash)
      .pexpire(index, SESSION_MAX_MS)
      .exec();
    const beyond = await this.#redis.zrange(index, '0', `${-MAX_SESSIONS - 1}`);
    if (beyond.length > 0) {
      await this.#redis.zrem(index, ...beyond);
      await this.#redis.del(...beyond.map((each) => this.#keys.session(each)));
      await this.#noteEnd();
    }
    return token;
  }
}

function toOperator(name: string, { role, createdAt }: OperatorRecord): StoredOperator {
  return { name, role, createdAt: new Date(createdAt) };
}

function mintToken(): string {
  return randomBytes(32).toString('base64url');
}

/** Random bits need neither salt nor a slow hash. */
function hashToken(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}
