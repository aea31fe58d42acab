import type { AuditEntry, AuditRecord } from '../core/audit.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';

/** Entries that are kept. Redis removes the oldest in blocks, so that there may be some more. */
export const MAX_ENTRIES = 10_000;

/** A value longer than this is cut, in characters: prompts and schemas may be long. */
const MAX_VALUE_LENGTH = 300;

/** Fields of one entry; what changes more at once says how many more. */
const MAX_CHANGES = 30;

export interface AuditFilter {
  limit: number;
  /** Only entries from then on. */
  since?: Date | undefined;
  /** Only entries older than the one with this id. */
  before?: string | undefined;
}

/** Who changed what and when: a log that only grows at its end, and is cut at its beginning. */
export class AuditLog {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** Redis' clock says when. @returns the id of the entry */
  async append(record: AuditRecord): Promise<string> {
    const text = JSON.stringify(bounded(record));
    return (await this.#redis.xadd(this.#keys.audit, 'MAXLEN', '~', MAX_ENTRIES, '*', 'record', text)) ?? '';
  }

  /** Takes back the entry of a change that was then refused. */
  async withdraw(id: string): Promise<void> {
    await this.#redis.xdel(this.#keys.audit, id);
  }

  /** The latest entries, the latest first. */
  async list({ limit, since, before }: AuditFilter): Promise<AuditEntry[]> {
    const end = before === undefined ? '+' : `(${before}`;
    const start = since === undefined ? '-' : `${since.getTime()}`;
    const found = await this.#redis.xrevrange(this.#keys.audit, end, start, 'COUNT', limit);
    return found.map(([id, [, text = '{}']]) => ({
      ...(JSON.parse(text) as AuditRecord),
      id,
      at: new Date(Number(id.split('-', 1)[0])),
    }));
  }
}

function bounded(record: AuditRecord): AuditRecord {
  const { changes } = record;
  if (!changes) return record;
  const more = changes.length - MAX_CHANGES;
  return {
    ...record,
    changes: changes.slice(0, MAX_CHANGES).map(({ field, from, to }) => ({
      field,
      ...(from !== undefined && { from: cut(from) }),
      ...(to !== undefined && { to: cut(to) }),
    })),
    ...(more > 0 && { note: `and ${more} more fields` }),
  };
}

function cut(value: unknown): unknown {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.length <= MAX_VALUE_LENGTH ? value : `${text.slice(0, MAX_VALUE_LENGTH)}…`;
}
